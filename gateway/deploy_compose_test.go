package gateway_test

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"sluice/gateway/config"
)

// stopMargin is what a supervisor should add to LAME_DUCK_SECONDS +
// DRAIN_SECONDS, as the process itself does when it asks for time.
const stopMargin = 10 * time.Second

// compose is what this test knows of a compose file; other keys are faults.
type compose struct {
	Name     string `yaml:"name"`
	Replica  any    `yaml:"x-replica"`
	Settings any    `yaml:"x-settings"`
	Services map[string]struct {
		Image       string                       `yaml:"image"`
		Build       struct{ Context string }     `yaml:"build"`
		Restart     string                       `yaml:"restart"`
		ReadOnly    bool                         `yaml:"read_only"`
		CapDrop     []string                     `yaml:"cap_drop"`
		SecurityOpt []string                     `yaml:"security_opt"`
		Ulimits     map[string]int               `yaml:"ulimits"`
		MemLimit    string                       `yaml:"mem_limit"`
		Grace       string                       `yaml:"stop_grace_period"`
		Volumes     []string                     `yaml:"volumes"`
		Ports       []string                     `yaml:"ports"`
		Command     []string                     `yaml:"command"`
		Environment map[string]any               `yaml:"environment"`
		DependsOn   map[string]map[string]string `yaml:"depends_on"`
		Networks    any                          `yaml:"networks"`
		Healthcheck struct {
			Test     []string `yaml:"test"`
			Interval string   `yaml:"interval"`
			Timeout  string   `yaml:"timeout"`
		} `yaml:"healthcheck"`
	} `yaml:"services"`
	Networks map[string]struct {
		Internal bool `yaml:"internal"`
		IPAM     struct {
			Config []struct{ Subnet string } `yaml:"config"`
		} `yaml:"ipam"`
	} `yaml:"networks"`
}

// settingsOf are a container's variables, each of them text.
func settingsOf(t testing.TB, where string, env map[string]any) (list []string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value, ok := env[name].(string)
		if !ok {
			t.Errorf("%s: %s is %T, no text: it needs quotes", where, name, env[name])
		}
		list = append(list, name+"="+value)
	}
	return list
}

// quarters expects a watermark of three quarters of a memory limit.
func quarters(t testing.TB, where string, cfg *config.Config, limit int64) {
	t.Helper()
	if cfg.Relay.MemoryWatermarkBytes != limit/4*3 {
		t.Errorf("%s: the watermark is %d, three quarters of the limit are %d", where, cfg.Relay.MemoryWatermarkBytes, limit/4*3)
	}
}

// enoughTime expects a supervisor to wait for the drain.
func enoughTime(t testing.TB, where string, cfg *config.Config, grace time.Duration) {
	t.Helper()
	if need := cfg.Lifecycle.LameDuck + cfg.Lifecycle.Drain + stopMargin; grace < need || grace > need+30*time.Second {
		t.Errorf("%s: killed after %v, a stop may take %v", where, grace, need)
	}
}

// enoughFiles expects room for every connection that the ceilings allow.
func enoughFiles(t testing.TB, where string, cfg *config.Config, limit uint64) {
	t.Helper()
	for _, n := range cfg.CheckFileLimit(limit) {
		t.Errorf("%s: %s", where, n.Text)
	}
}

// exampleSettings fills in the secret that the example leaves to people.
func exampleSettings(t testing.TB, file string) (read func(string) ([]byte, error)) {
	t.Helper()
	text := rewritten(t, file, `client_id_secret: ""`, "client_id_secret: "+strings.Repeat("x", 44))
	return func(name string) ([]byte, error) {
		if name == "/etc/sluice/sluice.yaml" {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	}
}

// readCompose reads the shipped compose file.
func readCompose(t testing.TB) (c compose) {
	t.Helper()
	text, err := os.ReadFile(deployDir + "/compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalWithOptions(text, &c, yaml.Strict()); err != nil {
		t.Fatal(yaml.FormatError(err, false, true))
	}
	return c
}

func TestComposeFile(t *testing.T) {
	c := readCompose(t)
	haproxy, ok := c.Services["haproxy"].Networks.(map[string]any)
	if !ok {
		t.Fatal("haproxy has no address of its own")
	}
	front := fmt.Sprint(haproxy["edge"].(map[string]any)["ipv4_address"])
	subnet, err := netip.ParsePrefix(c.Networks["edge"].IPAM.Config[0].Subnet)
	if err != nil || !subnet.Contains(netip.MustParseAddr(front)) {
		t.Errorf("haproxy's %s is not in %v %v", front, subnet, err)
	}
	read := exampleSettings(t, "compose/conf/sluice.example.yaml")
	targets := map[string]bool{}
	for _, name := range []string{"sluice-a", "sluice-b"} {
		s := c.Services[name]
		cfg := checkSettingsWith(t, name, settingsOf(t, name, s.Environment), read)
		if !cfg.Edge.ProxyProtocol || len(cfg.Edge.TrustedProxies) != 1 || cfg.Edge.TrustedProxies[0].String() != front+"/32" {
			t.Errorf("%s takes PROXY headers from %v, expected %s alone", name, cfg.Edge.TrustedProxies, front)
		}
		if !cfg.Redis.On() || cfg.Relay.Ownership != config.OwnershipRedis || targets[cfg.Relay.OwnershipTarget] {
			t.Errorf("%s: %v %s %s", name, cfg.Redis.Server.Addrs, cfg.Relay.Ownership, cfg.Relay.OwnershipTarget)
		}
		targets[cfg.Relay.OwnershipTarget] = true
		if host, _, _ := strings.Cut(cfg.Redis.Server.Addrs[0], ":"); c.Services[host].Image == "" {
			t.Errorf("%s: no service %s", name, host)
		}
		grace, err := time.ParseDuration(s.Grace)
		if err != nil {
			t.Error(err)
		}
		enoughTime(t, name, cfg, grace)
		enoughFiles(t, name, cfg, uint64(s.Ulimits["nofile"]))
		if s.MemLimit != "1g" {
			t.Errorf("%s: mem_limit %s", name, s.MemLimit)
		}
		quarters(t, name, cfg, 1<<30)
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s is not locked down", name)
		}
		if len(s.Ports) != 0 {
			t.Errorf("%s is reached around haproxy", name)
		}
	}
	// The builder's directory is this repository.
	if dir := deployDir + "/compose/" + c.Services["sluice-a"].Build.Context; !sameFile(dir, topDir) {
		t.Errorf("the image is built in %s", dir)
	}
	for name, s := range c.Services {
		for dep := range s.DependsOn {
			if c.Services[dep].Image == "" {
				t.Errorf("%s depends on %s, which is not there", name, dep)
			}
		}
		for _, v := range s.Volumes {
			if from, _, _ := strings.Cut(v, ":"); !fileExists(deployDir + "/compose/" + from) {
				t.Errorf("%s mounts %s, which is not there", name, from)
			}
		}
	}
	if !c.Networks["store"].Internal {
		t.Error("Redis can be reached from outside")
	}
	// HAProxy has two descriptors per connection.
	if files := c.Services["haproxy"].Ulimits["nofile"]; files < 2*60000+1000 {
		t.Errorf("haproxy may have %d descriptors", files)
	}
	// Without a secret of one's own nothing starts.
	bare := func(string) ([]byte, error) { return os.ReadFile(deployDir + "/compose/conf/sluice.example.yaml") }
	env := settingsOf(t, "sluice-a", c.Services["sluice-a"].Environment)
	if _, faults, _ := config.Load(env, bare); len(faults) == 0 {
		t.Error("the example starts without a secret")
	}
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

func sameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}
