"""glue: settings of the V-IPU Proxy."""

from __future__ import annotations

from ipuhub.variables import ENV

ENV.read_by("V-IPU Proxy")
PROXY_HOST = ENV.text(
    "PROXY_HOST",
    "127.0.0.1",
    doc="Address the V-IPU Proxy listens on. `::` stands for every address of IPv6 and IPv4.",
)
PROXY_PORT = ENV.port("PROXY_PORT", 8080, doc="Port the V-IPU Proxy listens on.")
POD_NAME = ENV.text(
    "IPUHUB_POD_NAME",
    "",
    doc="Name of the proxy's own pod in IPUHUB_NAMESPACE. If set, the proxy that leads labels it "
    "ipuhub.io/leader=true for a Service to select, and a standby is ready. Needs patch on "
    "pods/status. Empty: a standby is not ready.",
)
PROXY_MUTATIONS_PORT = ENV.port(
    "IPUHUB_PROXY_MUTATIONS_PORT",
    0,
    doc="Second port of the V-IPU Proxy. If set, only it serves /v1, so that a network policy can "
    "open PROXY_PORT (/stats, /query) to every pod; set IPUHUB_PROXY_URL of the other processes to "
    "it. 0: PROXY_PORT serves everything.",
)
PROXY_FINISH_SECONDS = ENV.number(
    "IPUHUB_PROXY_FINISH_SECONDS",
    12.0,
    doc="How long the proxy waits after SIGTERM for calls to V-IPU to end and to be recorded; "
    "more than IPUHUB_VIPU_DEADLINE_SECONDS and at most 20.",
)
PROXY_RESERVE_AFTER_SECONDS = ENV.number(
    "IPUHUB_PROXY_RESERVE_AFTER_SECONDS",
    0.0,
    doc="How long a job waits for IPUs before newer jobs are kept off one V-IPU controller for "
    "it; 0: never, any job that fits takes free IPUs.",
)
VIPU_CONTROLLERS = ENV.text(
    "IPUHUB_VIPU_CONTROLLERS",
    "",
    doc="V-IPU controllers as host:port:label=value, comma-separated.",
)
VIPU_CONTROLLERS_PATH = ENV.text(
    "IPUHUB_VIPU_CONTROLLERS_PATH",
    "",
    doc="File with the list of V-IPU controllers, instead of IPUHUB_VIPU_CONTROLLERS. The proxy "
    "applies changes within 60 s.",
)
VIPU_CONTROLLERS_CONFIGMAP = ENV.text(
    "IPUHUB_VIPU_CONTROLLERS_CONFIGMAP",
    "",
    doc="ConfigMap in the proxy's namespace from which that file is mounted. The proxy reads it "
    "every 10 s, because a kubelet writes changes into the file up to 90 s later.",
)
TRACKER_CONFIGMAP = ENV.text(
    "IPUHUB_TRACKER_CONFIGMAP", "ipu-partitions-tracker", doc="Name of the tracker ConfigMap."
)
TRACKER_TOMBSTONE_SECONDS = ENV.integer(
    "IPUHUB_TRACKER_TOMBSTONE_SECONDS",
    900,
    minimum=0,
    doc="How long the tracker keeps a released partition at least.",
)
TRACKER_RECORDER = ENV.switch(
    "IPUHUB_TRACKER_RECORDER",
    False,
    doc="Also keep a released partition in the tracker until a recorder acknowledges it.",
)
SWEEP_SECONDS = ENV.number(
    "IPUHUB_SWEEP_SECONDS",
    60.0,
    doc="How often the proxy compares the tracker with the V-IPU controllers.",
)
VIPU_DEADLINE_SECONDS = ENV.number(
    "IPUHUB_VIPU_DEADLINE_SECONDS", 10.0, doc="Deadline of each call to a V-IPU controller."
)
VIPU_CA_PATH = ENV.text(
    "IPUHUB_VIPU_CA_PATH",
    "",
    doc="File with the CA certificates that verify the V-IPU controllers (PEM). If set, the proxy "
    "talks to them over TLS. Changed files are used from the next call on.",
)
VIPU_CERTIFICATE_PATH = ENV.text(
    "IPUHUB_VIPU_CERTIFICATE_PATH",
    "",
    doc="File with the proxy's certificate for V-IPU controllers that ask for one (PEM).",
)
VIPU_KEY_PATH = ENV.text(
    "IPUHUB_VIPU_KEY_PATH",
    "",
    doc="File with the private key of IPUHUB_VIPU_CERTIFICATE_PATH (PEM).",
)
VIPU_ACCESS_PATH = ENV.text(
    "IPUHUB_VIPU_ACCESS_PATH",
    "",
    doc="Folder with a subfolder for each V-IPU controller, named after its host (or host_port), "
    "or one named default. Files in it: ca.crt, tls.crt and tls.key, and for controllers with "
    "users user-id and access-key. Comes before IPUHUB_VIPU_CA_PATH. Changed files are used from "
    "the next call on.",
)
VIPU_CLUSTER_NAME = ENV.text(
    "IPUHUB_VIPU_CLUSTER_NAME", "", doc="cluster_id of new partitions; empty: any."
)
VIPU_ALLOCATION_ID = ENV.text(
    "IPUHUB_VIPU_ALLOCATION_ID", "", doc="allocation_id of new partitions; empty: any."
)
VIPU_NUM_GCDS = ENV.integer(
    "IPUHUB_VIPU_NUM_GCDS",
    0,
    minimum=0,
    doc="Number of GCDs of new partitions; 0: the controller's default.",
)
VIPU_NUM_REPLICAS = ENV.integer(
    "IPUHUB_VIPU_NUM_REPLICAS",
    0,
    minimum=0,
    doc="Number of replicas of new partitions over all GCDs; 0: the controller's default.",
)
VIPU_RECONFIGURABLE = ENV.switch(
    "IPUHUB_VIPU_RECONFIGURABLE", False, doc="Whether new partitions are reconfigurable."
)
PLACEMENT = ENV.choice(
    "IPUHUB_PLACEMENT",
    "first-fit",
    ("first-fit", "best-fit"),
    doc="Which V-IPU controller is tried first. first-fit: the order of the list. best-fit: the "
    "controller with the smallest free block that fits.",
)
IPU_VISIBILITY_ON_MASTER = ENV.switch(
    "IPUHUB_IPU_VISIBILITY_ON_MASTER",
    False,
    doc="Whether IPUs are also shown on nodes of the control plane.",
)
ENV.read_by("V-IPU Proxy and prober")
IPU_VISIBILITY = ENV.switch(
    "IPUHUB_IPU_VISIBILITY",
    False,
    doc="Show IPUs on the nodes: labels ipuhub.io/ipus and ipuhub.io/free-ipus on all nodes of a "
    "V-IPU controller, and the capacity graphcore.ai/ipu on one of them. Requests for that "
    "resource then hold no IPU and do not count as usage. The proxy needs patch on nodes and "
    "nodes/status. Set the same value for proxy and prober.",
)
