//go:build linux

package kubetest

import (
	"encoding/json"
	"fmt"
	"path/filepath"
)

// Addresses within the network of a cluster. They are the same in all clusters, because each cluster
// has its own network.
const (
	nodeName    = "node"
	NodeAddress = "10.77.0.1"
	nodePrefix  = "/24"
	podNetwork  = "10.78.0.0/16"
	serviceIPs  = "10.79.0.0/16"
	APIPort     = "6443"
	inside      = "https://" + NodeAddress + ":" + APIPort // URL of the API server inside the cluster
)

// Directories in a cluster's own mounts. Their files are in memory.
const (
	configuration = "/run/kubetest"
	programsDir   = "/run/programs"
	logs          = "/run/logs"
	imagesDir     = "/run/images"
)

// Programs from Debian's packages, and the directories in which they are looked up.
const (
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	etcd       = "etcd"
	containerd = "containerd"
)

func config(name string) string { return filepath.Join(configuration, name) }

func built(name string, args ...string) order {
	return order{Start: name, Args: append([]string{filepath.Join(programsDir, name)}, args...)}
}

// start returns the order to start a program.
func start(name string) order {
	ca, token := config("ca.crt"), config(name+".kubeconfig")
	switch name {
	case etcd:
		return order{Start: name, Args: []string{etcd, "--data-dir=/run/etcd", "--unsafe-no-fsync", "--log-level=warn"}}
	case containerd:
		return order{Start: name, Args: []string{containerd, "--config=" + config("containerd.toml")}}
	case apiServer:
		return built(name, "--etcd-servers=http://127.0.0.1:2379", "--bind-address="+NodeAddress, "--advertise-address="+NodeAddress,
			"--secure-port="+APIPort, "--service-cluster-ip-range="+serviceIPs,
			"--tls-cert-file="+config("server.crt"), "--tls-private-key-file="+config("server.key"),
			"--token-auth-file="+config("tokens.csv"), "--authorization-mode=Node,RBAC", "--allow-privileged",
			"--service-account-key-file="+config("accounts.key"), "--service-account-signing-key-file="+config("accounts.key"),
			"--service-account-issuer=https://kubernetes.default.svc",
			"--kubelet-client-certificate="+config("kubelet-client.crt"), "--kubelet-client-key="+config("kubelet-client.key"),
			"--kubelet-preferred-address-types=InternalIP") // others it would look up in DNS
	case controllerManager:
		return built(name, "--kubeconfig="+token, "--root-ca-file="+ca, "--service-account-private-key-file="+config("accounts.key"),
			"--use-service-account-credentials", "--leader-elect=false", "--enable-hostpath-provisioner", "--bind-address=127.0.0.1")
	case scheduler:
		return built(name, "--kubeconfig="+token, "--leader-elect=false", "--bind-address=127.0.0.1")
	case kubelet:
		return built(name, "--kubeconfig="+token, "--config="+config("kubelet.json"), "--hostname-override="+nodeName, "--node-ip="+NodeAddress)
	case sandboxController:
		return built(name, "--kubeconfig="+token, "--extensions", "--enable-webhook=false", "--leader-elect=false")
	}
	panic("kubetest: no program " + name)
}

// addConfiguration adds the configuration files of containerd, its network plugins and the kubelet.
// group is the control group of the cluster.
func (f files) addConfiguration(group string) {
	type object = map[string]any
	f["resolv.conf"] = nil // without a name server pods look up nothing
	f["cni/pods.conflist"] = encode(object{"cniVersion": "1.0.0", "name": "pods", "plugins": []object{{
		"type": "bridge", "bridge": "pods0", "isDefaultGateway": true,
		"ipam": object{"type": "host-local", "ranges": [][]object{{{"subnet": podNetwork}}}},
	}}})
	// Without CAP_SYS_RESOURCE nothing may lower the score of a pod's processes. The plugin "opt"
	// wants a directory of this machine.
	f["containerd.toml"] = fmt.Appendf(nil, `version = 2
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %q
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = %q
`, Bare, config("cni"))
	f["kubelet.json"] = encode(object{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"address":                       NodeAddress,
		"authentication":                object{"anonymous": object{"enabled": false}, "webhook": object{"enabled": true}, "x509": object{"clientCAFile": config("ca.crt")}},
		"authorization":                 object{"mode": "Webhook"},
		"containerRuntimeEndpoint":      "unix:///run/containerd/containerd.sock",
		"cgroupDriver":                  "cgroupfs",
		"cgroupRoot":                    "/" + group,
		"failCgroupV1":                  false,
		"failSwapOn":                    false,
		"enforceNodeAllocatable":        []string{"none"},
		"localStorageCapacityIsolation": false,
		"evictionHard":                  object{"memory.available": "1Mi"}, // otherwise a full machine evicts pods
		"imageGCHighThresholdPercent":   100,
		"resolvConf":                    config("resolv.conf"),
		"volumePluginDir":               "/run/kubetest/volumeplugins",
		"makeIPTablesUtilChains":        false,
		"serializeImagePulls":           false,
	})
}

func encode(v any) []byte {
	data, _ := json.Marshal(v) // maps of strings, numbers and lists cannot fail
	return data
}
