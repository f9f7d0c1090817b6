// kubectl, as Kubernetes' own cmd/kubectl starts it, for the launcher's image.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

func main() {
	os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
}
