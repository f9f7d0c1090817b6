// Enforces NetworkPolicies on one node: kube-router's policy controller, alone.
package main

import (
	"flag"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "of who may read pods, namespaces, policies and nodes")
	node := flag.String("node", "", "the node that this network namespace is")
	services := flag.String("services", "", "addresses of Services, as a CIDR")
	flag.Parse()

	stop := make(chan struct{})
	rest, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(err)
	client, err := kubernetes.NewForConfig(rest)
	must(err)
	all := informers.NewSharedInformerFactory(client, 0)
	pods, policies := all.Core().V1().Pods().Informer(), all.Networking().V1().NetworkPolicies().Informer()
	spaces := all.Core().V1().Namespaces().Informer()
	all.Start(stop)
	all.WaitForCacheSync(stop)

	config := options.NewKubeRouterConfig()
	config.HostnameOverride, config.ClusterIPCIDRs = *node, []string{*services}
	config.EnableIPv4, config.EnableIPv6 = true, false
	config.IPTablesSyncPeriod = time.Minute
	tables, sets, err := netpol.NewIPTablesHandlers(config)
	must(err)
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, spaces, &sync.Mutex{}, tables, sets)
	must(err)
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: controller.PodEventHandler, policies: controller.NetworkPolicyEventHandler,
		spaces: controller.NamespaceEventHandler,
	} {
		_, err = informer.AddEventHandler(handler)
		must(err)
	}
	beats := make(chan *healthcheck.ControllerHeartbeat, 10)
	go func() {
		for range beats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	go controller.Run(beats, stop, &running)

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
	close(stop)
	running.Wait()
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
