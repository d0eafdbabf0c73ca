package gateway_test

import (
	"errors"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"sluice/gateway/config"
)

const manifestFile = deployDir + "/kubernetes/sluice.yaml"

// The objects as far as our manifest uses them. An unknown key is a fault, since a
// cluster may drop it without a word.
type (
	kubeMeta struct {
		Name        string            `yaml:"name"`
		Namespace   string            `yaml:"namespace"`
		Labels      map[string]string `yaml:"labels"`
		Annotations map[string]string `yaml:"annotations"`
	}
	// KubeHead is exported for the decoder, which sets embedded fields only then.
	KubeHead struct {
		APIVersion string   `yaml:"apiVersion"`
		Kind       string   `yaml:"kind"`
		Metadata   kubeMeta `yaml:"metadata"`
	}
	kubeSelector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	kubeNamed struct {
		Name string `yaml:"name"`
	}
	kubePort struct {
		Name          string `yaml:"name"`
		ContainerPort int    `yaml:"containerPort"`
		Port          any    `yaml:"port"`
		TargetPort    string `yaml:"targetPort"`
	}
	kubeProbe struct {
		HTTPGet struct {
			Path string `yaml:"path"`
			Port string `yaml:"port"`
		} `yaml:"httpGet"`
		PeriodSeconds    int `yaml:"periodSeconds"`
		TimeoutSeconds   int `yaml:"timeoutSeconds"`
		FailureThreshold int `yaml:"failureThreshold"`
	}
	kubeEnv struct {
		Name      string `yaml:"name"`
		Value     string `yaml:"value"`
		ValueFrom struct {
			SecretKeyRef struct {
				Name string `yaml:"name"`
				Key  string `yaml:"key"`
			} `yaml:"secretKeyRef"`
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	kubeContainer struct {
		Name            string     `yaml:"name"`
		Image           string     `yaml:"image"`
		ImagePullPolicy string     `yaml:"imagePullPolicy"`
		Ports           []kubePort `yaml:"ports"`
		EnvFrom         []struct {
			ConfigMapRef kubeNamed `yaml:"configMapRef"`
		} `yaml:"envFrom"`
		Env            []kubeEnv `yaml:"env"`
		StartupProbe   kubeProbe `yaml:"startupProbe"`
		LivenessProbe  kubeProbe `yaml:"livenessProbe"`
		ReadinessProbe kubeProbe `yaml:"readinessProbe"`
		Resources      struct {
			Requests map[string]string `yaml:"requests"`
			Limits   map[string]string `yaml:"limits"`
		} `yaml:"resources"`
		SecurityContext struct {
			AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct {
				Drop []string `yaml:"drop"`
			} `yaml:"capabilities"`
		} `yaml:"securityContext"`
		VolumeMounts []struct {
			Name      string `yaml:"name"`
			MountPath string `yaml:"mountPath"`
			ReadOnly  bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	kubePod struct {
		ServiceAccountName            string `yaml:"serviceAccountName"`
		AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
		EnableServiceLinks            *bool  `yaml:"enableServiceLinks"`
		TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
		SecurityContext               struct {
			RunAsNonRoot   bool `yaml:"runAsNonRoot"`
			RunAsUser      int  `yaml:"runAsUser"`
			RunAsGroup     int  `yaml:"runAsGroup"`
			FSGroup        int  `yaml:"fsGroup"`
			SeccompProfile struct {
				Type string `yaml:"type"`
			} `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
		TopologySpreadConstraints []struct {
			MaxSkew           int          `yaml:"maxSkew"`
			TopologyKey       string       `yaml:"topologyKey"`
			WhenUnsatisfiable string       `yaml:"whenUnsatisfiable"`
			LabelSelector     kubeSelector `yaml:"labelSelector"`
		} `yaml:"topologySpreadConstraints"`
		Containers []kubeContainer `yaml:"containers"`
		Volumes    []struct {
			Name   string `yaml:"name"`
			Secret struct {
				SecretName  string `yaml:"secretName"`
				DefaultMode int    `yaml:"defaultMode"`
				Items       []struct {
					Key  string `yaml:"key"`
					Path string `yaml:"path"`
				} `yaml:"items"`
			} `yaml:"secret"`
		} `yaml:"volumes"`
	}
	kubeDeployment struct {
		KubeHead `yaml:",inline"`
		Spec     struct {
			Replicas int          `yaml:"replicas"`
			Selector kubeSelector `yaml:"selector"`
			Strategy struct {
				RollingUpdate struct {
					MaxSurge       int `yaml:"maxSurge"`
					MaxUnavailable int `yaml:"maxUnavailable"`
				} `yaml:"rollingUpdate"`
			} `yaml:"strategy"`
			Template struct {
				Metadata kubeMeta `yaml:"metadata"`
				Spec     kubePod  `yaml:"spec"`
			} `yaml:"template"`
		} `yaml:"spec"`
	}
	kubeConfigMap struct {
		KubeHead `yaml:",inline"`
		Data     map[string]any `yaml:"data"`
	}
	kubeAccount struct {
		KubeHead                     `yaml:",inline"`
		AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
	}
	kubeBudget struct {
		KubeHead `yaml:",inline"`
		Spec     struct {
			MaxUnavailable int          `yaml:"maxUnavailable"`
			Selector       kubeSelector `yaml:"selector"`
		} `yaml:"spec"`
	}
	kubeService struct {
		KubeHead `yaml:",inline"`
		Spec     struct {
			Selector map[string]string `yaml:"selector"`
			Ports    []kubePort        `yaml:"ports"`
		} `yaml:"spec"`
	}
	kubeIngress struct {
		KubeHead `yaml:",inline"`
		Spec     struct {
			IngressClassName string `yaml:"ingressClassName"`
			TLS              []struct {
				Hosts      []string `yaml:"hosts"`
				SecretName string   `yaml:"secretName"`
			} `yaml:"tls"`
			Rules []struct {
				Host string `yaml:"host"`
				HTTP struct {
					Paths []struct {
						Path     string `yaml:"path"`
						PathType string `yaml:"pathType"`
						Backend  struct {
							Service struct {
								Name string    `yaml:"name"`
								Port kubeNamed `yaml:"port"`
							} `yaml:"service"`
						} `yaml:"backend"`
					} `yaml:"paths"`
				} `yaml:"http"`
			} `yaml:"rules"`
		} `yaml:"spec"`
	}
	kubePolicy struct {
		KubeHead `yaml:",inline"`
		Spec     struct {
			PodSelector kubeSelector `yaml:"podSelector"`
			PolicyTypes []string     `yaml:"policyTypes"`
			Ingress     []struct {
				From []struct {
					NamespaceSelector kubeSelector `yaml:"namespaceSelector"`
				} `yaml:"from"`
				Ports []kubePort `yaml:"ports"`
			} `yaml:"ingress"`
		} `yaml:"spec"`
	}
)

// A manifest is the file's objects.
type manifest struct {
	account    kubeAccount
	settings   kubeConfigMap
	deployment kubeDeployment
	budget     kubeBudget
	service    kubeService
	policy     kubePolicy
	ingresses  []kubeIngress
}

func readManifest(t testing.TB, change func(string) string) (m manifest) {
	t.Helper()
	text, err := os.ReadFile(manifestFile)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(change(string(text)))
	for _, doc := range strings.Split(string(text), "\n---\n") {
		var head KubeHead
		if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
			t.Fatal(err)
		}
		var into any
		switch head.APIVersion + " " + head.Kind {
		case "v1 ServiceAccount":
			into = &m.account
		case "v1 ConfigMap":
			into = &m.settings
		case "apps/v1 Deployment":
			into = &m.deployment
		case "policy/v1 PodDisruptionBudget":
			into = &m.budget
		case "v1 Service":
			into = &m.service
		case "networking.k8s.io/v1 NetworkPolicy":
			into = &m.policy
		case "networking.k8s.io/v1 Ingress":
			m.ingresses = append(m.ingresses, kubeIngress{})
			into = &m.ingresses[len(m.ingresses)-1]
		default:
			t.Fatalf("an object that nobody expects: %+v", head)
		}
		if err := yaml.NewDecoder(strings.NewReader(doc), yaml.Strict()).Decode(into); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(yaml.FormatError(err, false, true))
		}
		if head.Metadata.Namespace != "sluice" || !strings.HasPrefix(head.Metadata.Name, "sluice") {
			t.Errorf("%s %s/%s", head.Kind, head.Metadata.Namespace, head.Metadata.Name)
		}
	}
	return m
}

// podSettings are the variables of the container and the settings they make.
func (m manifest) podSettings(t testing.TB, read func(string) ([]byte, error)) *config.Config {
	t.Helper()
	c := m.deployment.Spec.Template.Spec.Containers[0]
	if c.EnvFrom[0].ConfigMapRef.Name != m.settings.Metadata.Name {
		t.Errorf("the settings come from %q", c.EnvFrom[0].ConfigMapRef.Name)
	}
	// The image's environment is under both; a pod's wins.
	env := map[string]string{}
	for _, e := range slices.Concat(readDockerfile(t).env, settingsOf(t, manifestFile, m.settings.Data)) {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	var podIP string
	for _, e := range c.Env {
		switch ref := e.ValueFrom; {
		case ref.SecretKeyRef.Name == "sluice" && ref.SecretKeyRef.Key == e.Name && e.Name == "REDIS_URL":
			env[e.Name] = "redis://redis.sluice.svc:6379"
		case ref.FieldRef.FieldPath == "status.podIP":
			podIP = e.Name
		case e.Value != "" && podIP != "": // a variable may use those in front of it
			env[e.Name] = strings.ReplaceAll(e.Value, "$("+podIP+")", "10.244.1.7")
		default:
			t.Errorf("the variable %+v", e)
		}
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return checkSettingsWith(t, manifestFile, list, read)
}

// The lines that are options make a manifest whose pods speak TLS, with certificates
// that are mounted where the settings say.
func TestKubernetesOptions(t *testing.T) {
	m := readManifest(t, func(text string) string { return regexp.MustCompile(`(?m)^(\s*)#(\S)`).ReplaceAllString(text, "$1$2") })
	pod := m.deployment.Spec.Template.Spec
	cert, key := tlsFiles()
	files := map[string]string{}
	for _, v := range pod.Volumes {
		for _, mount := range pod.Containers[0].VolumeMounts {
			if mount.Name == v.Name && strings.HasSuffix(v.Name, "-tls") && mount.ReadOnly && v.Secret.DefaultMode == 0o440 {
				files[mount.MountPath+"/tls.crt"], files[mount.MountPath+"/tls.key"] = cert, key
			}
		}
	}
	example := exampleSettings(t, "compose/conf/sluice.example.yaml")
	cfg := m.podSettings(t, func(name string) ([]byte, error) {
		if file := files[name]; file != "" {
			return os.ReadFile(file)
		}
		return example(name)
	})
	if !cfg.Relay.TLS.On() || !cfg.MTE.TLS.On() || len(cfg.Edge.TrustedProxies) == 0 {
		t.Errorf("TLS %v %v, trusted %v", cfg.Relay.TLS, cfg.MTE.TLS, cfg.Edge.TrustedProxies)
	}
}

func TestKubernetesManifest(t *testing.T) {
	m := readManifest(t, strings.Clone)
	pod := m.deployment.Spec.Template.Spec
	if len(pod.Containers) != 1 || len(m.ingresses) != 2 {
		t.Fatalf("%d containers, %d ingresses", len(pod.Containers), len(m.ingresses))
	}
	c := pod.Containers[0]
	cfg := m.podSettings(t, exampleSettings(t, "compose/conf/sluice.example.yaml"))
	f := func(what string, ok bool) {
		t.Helper()
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
	no := func(b *bool) bool { return b != nil && !*b }

	// The pod is locked down.
	im := readDockerfile(t)
	user := strconv.Itoa(pod.SecurityContext.RunAsUser) + ":" + strconv.Itoa(pod.SecurityContext.RunAsGroup)
	f("it runs as the image's user", pod.SecurityContext.RunAsNonRoot && user == im.user)
	f("it has the runtime's seccomp profile", pod.SecurityContext.SeccompProfile.Type == "RuntimeDefault")
	f("it gains no privileges", no(c.SecurityContext.AllowPrivilegeEscalation))
	f("its root is read only", c.SecurityContext.ReadOnlyRootFilesystem)
	f("it has no capabilities", slices.Equal(c.SecurityContext.Capabilities.Drop, []string{"ALL"}))
	f("it has no token", no(pod.AutomountServiceAccountToken) && no(m.account.AutomountServiceAccountToken) && pod.ServiceAccountName == m.account.Metadata.Name)
	f("services make no variables", no(pod.EnableServiceLinks))

	// It stops in its own time, and tells balancers in theirs.
	enoughTime(t, manifestFile, cfg, time.Duration(pod.TerminationGracePeriodSeconds)*time.Second)
	notice := time.Duration(c.ReadinessProbe.PeriodSeconds*c.ReadinessProbe.FailureThreshold) * time.Second
	f("the endpoint is gone before new sessions are refused", cfg.Lifecycle.LameDuck >= notice+5*time.Second)
	f("there is always one", m.budget.Spec.MaxUnavailable == 1 && m.deployment.Spec.Replicas > 1 && m.deployment.Spec.Strategy.RollingUpdate.MaxUnavailable == 0)

	// Memory and cores.
	f("memory has a limit", c.Resources.Limits["memory"] == "1Gi")
	quarters(t, manifestFile, cfg, 1<<30)
	f("the cores do not", c.Resources.Limits["cpu"] == "")
	f("a loop per core", strconv.Itoa(cfg.Loops) == c.Resources.Requests["cpu"])

	// Ports: what the settings say, the probes ask, the service and the policy name.
	ports := map[string]int{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	f("the ports are those of the settings", maps.Equal(ports, map[string]int{
		"relay": int(cfg.Relay.Listen.Port), "encrypting": int(cfg.MTE.Listen.Port), "admin": int(cfg.Admin.Listen.Port),
	}))
	f("everything listens outside of the pod", cfg.Relay.Listen.Host.IsUnspecified() && cfg.MTE.Listen.Host.IsUnspecified() && cfg.Admin.Listen.Host.IsUnspecified())
	f("the target is this pod", cfg.Relay.OwnershipTarget == "10.244.1.7:"+strconv.Itoa(ports["relay"]))
	for _, p := range []kubeProbe{c.StartupProbe, c.LivenessProbe} {
		f("life is asked of the admin listener", p.HTTPGet.Path == "/health" && p.HTTPGet.Port == "admin")
	}
	f("readiness too", c.ReadinessProbe.HTTPGet.Path == "/ready" && c.ReadinessProbe.HTTPGet.Port == "admin")
	a := m.deployment.Spec.Template.Metadata.Annotations
	f("Prometheus finds it", a["prometheus.io/port"] == strconv.Itoa(ports["admin"]) && a["prometheus.io/path"] == "/metrics")
	services := map[string]bool{}
	for _, p := range m.service.Spec.Ports {
		services[p.Name] = true
		f("the service's port "+p.Name+" exists", ports[p.TargetPort] != 0 && p.Port != nil)
	}
	f("the admin port has no service", !services["admin"])
	for _, in := range m.ingresses {
		for i, r := range in.Spec.Rules {
			b := r.HTTP.Paths[0].Backend.Service
			f("the way of "+r.Host, b.Name == m.service.Metadata.Name && services[b.Port.Name] && slices.Contains(in.Spec.TLS[i].Hosts, r.Host))
			seconds, _ := strconv.Atoi(in.Metadata.Annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"])
			if timeout := time.Duration(seconds) * time.Second; b.Port.Name == "relay" {
				f("pings keep sockets open", cfg.Relay.PingInterval > 0 && timeout > cfg.Relay.PingInterval)
				f("only the upgrade is public", len(r.HTTP.Paths) == 1 && r.HTTP.Paths[0].Path == "/ws")
			} else {
				f("the proxy is more patient than the relay", timeout > cfg.MTE.MaxResponseTime && timeout > cfg.MTE.MaxRequestTime)
			}
		}
	}
	for _, rule := range m.policy.Spec.Ingress {
		f("a rule says from where", len(rule.From) > 0)
		for _, p := range rule.Ports {
			name, _ := p.Port.(string)
			f("the policy's port exists", ports[name] != 0)
			f("the admin port is for Prometheus", name != "admin" || rule.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] == "monitoring")
		}
	}

	// Everything that selects selects the pods.
	pods := m.deployment.Spec.Template.Metadata.Labels
	for _, s := range []map[string]string{
		m.deployment.Spec.Selector.MatchLabels, m.budget.Spec.Selector.MatchLabels, m.service.Spec.Selector,
		m.policy.Spec.PodSelector.MatchLabels, pod.TopologySpreadConstraints[0].LabelSelector.MatchLabels,
	} {
		f("a selector finds the pods", len(s) > 0 && maps.Equal(s, pods))
	}

	// The settings file is where the settings say.
	mount, volume := c.VolumeMounts[0], pod.Volumes[0]
	f("the settings file is mounted", mount.Name == volume.Name && mount.ReadOnly && mount.MountPath+"/"+volume.Secret.Items[0].Path == cfg.Source.File)
	f("the user may read it", volume.Secret.DefaultMode == 0o440 && pod.SecurityContext.FSGroup == pod.SecurityContext.RunAsGroup)
}
