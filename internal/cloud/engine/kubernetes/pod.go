package kubernetes

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// These are the labels of the engine's objects and of their pods.
const (
	labelSandbox  = "e2bctl/sandbox"  // id of the sandbox
	labelInstance = "e2bctl/instance" // name of the engine that made it, the same for all with its secret
)

const (
	// port is the port on which envd listens in a pod, on the loopback interface.
	port = 49980
	// container is the name of the sandbox's container. installer is the name of the init container
	// that installs the program and closes the network.
	container = "sandbox"
	installer = "install"
	// programVolume is the name of the volume that contains the program of the first process.
	programVolume = "program"
	installDir    = "/install"
)

// capabilities are the capabilities of the root user in a sandbox. Package managers need them. The
// level "baseline" of the Pod Security Standards permits them.
var capabilities = []corev1.Capability{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE", "SYS_CHROOT",
}

// nameOf returns the name of a sandbox's object and pod.
func nameOf(id string) (string, error) {
	name := "sandbox-" + id
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
		return "", fmt.Errorf("the id cannot be a part of a pod's name: %s", strings.Join(wrong, "; "))
	}
	return name, nil
}

// newObject returns the object of a new sandbox.
func (e *Engine) newObject(o engine.SandboxOptions, name string) *object {
	labels := map[string]string{labelSandbox: o.ID, labelInstance: e.keys.instance}
	end := metav1.NewTime(time.Now().Add(e.options.lease))
	made := &object{
		TypeMeta:   metav1.TypeMeta{APIVersion: sandboxes.GroupVersion().String(), Kind: "Sandbox"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: e.options.Namespace, Labels: labels},
		Spec: objectSpec{
			PodTemplate:    podTemplate{ObjectMeta: podMetadata{Labels: labels}, Spec: e.pod(o)},
			ShutdownTime:   &end,
			ShutdownPolicy: "Delete",
		},
	}
	e.addHome(made)
	return made
}

// pod returns the specification of a sandbox's pod.
func (e *Engine) pod(o engine.SandboxOptions) corev1.PodSpec {
	no, grace := false, int64(1) // envd takes no notice of SIGTERM
	spec := corev1.PodSpec{
		Hostname: o.ID, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
		AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
		SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Volumes:         []corev1.Volume{{Name: programVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		InitContainers: []corev1.Container{{
			Name: installer, Image: e.options.ProgramImage, ImagePullPolicy: corev1.PullIfNotPresent,
			Command:      append([]string{guest.Program, guest.InstallArgument, installDir + guest.Program}, e.deniedNetworks(closed(o))...),
			VolumeMounts: []corev1.VolumeMount{{Name: programVolume, MountPath: installDir}},
			// Its reason, when it fails, is in its output.
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			SecurityContext:          e.installerSecurity(),
			Resources:                corev1.ResourceRequirements{Limits: resources(1, 64<<20, 0), Requests: resources(0.01, 16<<20, 0)},
		}},
		Containers: []corev1.Container{{
			Name: container, Image: e.image(o), ImagePullPolicy: corev1.PullIfNotPresent,
			Command: []string{guest.Program, guest.PodArgument, strconv.Itoa(port), base64.StdEncoding.EncodeToString(e.keys.proof.Public().(ed25519.PublicKey))},
			Env: []corev1.EnvVar{{Name: guest.PodUIDVariable, ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"},
			}}},
			VolumeMounts:    []corev1.VolumeMount{{Name: programVolume, MountPath: guest.Program, SubPath: strings.TrimPrefix(guest.Program, "/"), ReadOnly: true}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: capabilities}},
			Resources:       sandboxResources(o.Limits.WithDefaults()),
		}},
	}
	if e.options.RuntimeClass != "" {
		spec.RuntimeClassName = &e.options.RuntimeClass
	}
	if e.baked(o) {
		spec.InitContainers, spec.Volumes, spec.Containers[0].VolumeMounts = nil, nil, nil
	}
	return spec
}

// baked reports whether the pod of a sandbox needs no installer: its image has the program already, and its
// network stays as it is.
func (e *Engine) baked(o engine.SandboxOptions) bool {
	return e.options.TrustNetworkPolicy && e.image(o) == e.options.ProgramImage
}

// image returns the image of a sandbox.
func (e *Engine) image(o engine.SandboxOptions) string {
	if o.Image == nil {
		return e.options.Image
	}
	if name, _, tagged := strings.Cut(o.Image.Reference, "@"); o.Image.Digest != "" && !tagged {
		return name + "@" + o.Image.Digest
	}
	return o.Image.Reference
}

// sandboxResources returns the limits of a sandbox, and the requests, which the scheduler reserves
// for it. The requests are all of its memory, because memory cannot be taken back, and a tenth of
// its processors.
func sandboxResources(l engine.Limits) corev1.ResourceRequirements {
	requests := resources(l.CPUs/10, l.MemoryBytes, 0)
	requests[corev1.ResourceEphemeralStorage] = resource.Quantity{} // without it, the limit would be kept free
	return corev1.ResourceRequirements{Limits: resources(l.CPUs, l.MemoryBytes, l.DiskBytes), Requests: requests}
}

// resources returns a list of resources. It leaves out memory or disk if the value is 0.
func resources(cpus float64, memory, disk int64) corev1.ResourceList {
	list := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(max(int64(cpus*1000), 1), resource.DecimalSI)}
	if memory > 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	}
	if disk > 0 {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(disk, resource.BinarySI)
	}
	return list
}
