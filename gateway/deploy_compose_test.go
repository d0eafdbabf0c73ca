package gateway_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
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

func TestComposeFile(t *testing.T) {
	text, err := os.ReadFile(deployDir + "/compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c compose
	if err := yaml.UnmarshalWithOptions(text, &c, yaml.Strict()); err != nil {
		t.Fatal(yaml.FormatError(err, false, true))
	}
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

// A proxyEnd is the replica's end of PROXY protocol version 2: it takes the
// header off every connection and passes the rest on to a replica.
type proxyEnd struct {
	t    *testing.T
	addr string
	to   string

	mu      sync.Mutex
	clients map[string]bool // addresses of the headers
	checks  int             // connections of the proxy's own
	faults  []error
}

func startProxyEnd(t *testing.T, to string) *proxyEnd {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxyEnd{t: t, addr: ln.Addr().String(), to: to, clients: map[string]bool{}}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go p.serve(c.(*net.TCPConn))
		}
	}()
	return p
}

func (p *proxyEnd) serve(c *net.TCPConn) {
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(patience))
	in := bufio.NewReader(c)
	client, err := readHAProxyHeader(in)
	p.mu.Lock()
	switch {
	case err != nil:
		p.faults = append(p.faults, err)
	case client == "":
		p.checks++
	default:
		p.clients[client] = true
	}
	p.mu.Unlock()
	if err != nil {
		return
	}
	c.SetReadDeadline(time.Time{})
	up, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		io.Copy(up, in)
		up.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(c, up)
}

// readHAProxyHeader reads a header of version 2 and returns the client's address,
// none for a connection of the proxy itself.
func readHAProxyHeader(r io.Reader) (client string, err error) {
	var h [16]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return "", err
	}
	if string(h[:12]) != "\r\n\r\n\x00\r\nQUIT\n" || h[12]>>4 != 2 {
		return "", fmt.Errorf("no PROXY header of version 2: %q", h)
	}
	body := make([]byte, binary.BigEndian.Uint16(h[14:]))
	if _, err := io.ReadFull(r, body); err != nil {
		return "", err
	}
	switch {
	case h[12] == 0x20: // LOCAL
		return "", nil
	case h[12] == 0x21 && h[13] == 0x11 && len(body) >= 12: // PROXY, TCP over IPv4
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(body[:4])), binary.BigEndian.Uint16(body[8:])).String(), nil
	}
	return "", fmt.Errorf("a PROXY header that nobody expects: %x %x", h, body)
}

func (p *proxyEnd) port() string {
	_, port, _ := net.SplitHostPort(p.addr)
	return port
}

func (p *proxyEnd) has(client net.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clients[client.String()]
}

// TestDeployHAProxy runs HAProxy with the shipped file in front of two replicas.
func TestDeployHAProxy(t *testing.T) {
	t.Parallel()
	haproxy := debianProgram(t, "haproxy")
	mustPass(t, haproxy, "-c", "-q", "-f", deployDir+"/compose/haproxy.cfg")

	a, b := serve(t, "DRAIN_SECONDS=0"), serve(t, "DRAIN_SECONDS=0")
	ends := []*proxyEnd{startProxyEnd(t, a.addr), startProxyEnd(t, b.addr)}
	relay, encrypting, health := nextPort(), nextPort(), nextPort()
	conf := savedFile(t, t.TempDir(), "haproxy.cfg", rewritten(t, "compose/haproxy.cfg",
		"bind :4000", "bind 127.0.0.1:"+relay, "bind :8080", "bind 127.0.0.1:"+encrypting, "bind 127.0.0.1:8404", "bind 127.0.0.1:"+health,
		"sluice-a:4000", ends[0].addr, "sluice-b:4000", ends[1].addr, "inter 2s", "inter 100ms", "maxconn 60000", "maxconn 1000",
		// What is said to the other port is the relay's here, too.
		"sluice-a:8080 check port 4000", ends[0].addr+" check port "+ends[0].port(), "sluice-b:8080 check port 4000", ends[1].addr+" check port "+ends[1].port())+"\n")
	log := startProgram(t, nil, haproxy, "-db", "-f", conf)
	at := "127.0.0.1:" + relay
	untilListening(t, at, log)

	// Every serverId has one replica, and both have some.
	var open [][2]*wsClient
	for i := range 24 {
		sid := fmt.Sprint("session-", i)
		var pair [2]*wsClient
		for j, role := range []string{"server", "client"} {
			w, err := dialWS(t, at, wsQuery(sid, role, 1, "-"), sid+" "+role)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.rst)
			pair[j] = w
		}
		pair[1].text("up")
		pair[0].wantText("up")
		open = append(open, pair)
	}
	onA, onB := 0, 0
	for _, pair := range open {
		first, second := ends[0].has(pair[0].nc.LocalAddr()), ends[1].has(pair[0].nc.LocalAddr())
		if first == second || ends[0].has(pair[1].nc.LocalAddr()) != first || ends[1].has(pair[1].nc.LocalAddr()) != second {
			t.Fatalf("%s: the headers do not name the clients, or its sockets are on two replicas", pair[0].name)
		}
		if first {
			onA++
		} else {
			onB++
		}
	}
	if onA == 0 || onB == 0 {
		t.Errorf("%d sessions on one replica, %d on the other", onA, onB)
	}
	if res := httpDo(t, "127.0.0.1:"+encrypting, "GET", "/health"); res.status != 200 {
		t.Errorf("through the second frontend: %d", res.status)
	}
	if res := httpDo(t, "127.0.0.1:"+health, "GET", "/health"); res.status != 200 {
		t.Errorf("HAProxy's own health: %d", res.status)
	}

	// A replica that drains gets nothing new, and loses nobody.
	httpDo(t, a.admin, "POST", "/drain", "X-Sluice-Admin:1")
	next := 0
	if !poll(func() bool {
		next++
		for i := range 8 { // all of them land on the other one
			w, err := dialWS(t, at, wsQuery(fmt.Sprint("later-", next, "-", i), "server", 1, "-"), "later")
			if err != nil {
				return false
			}
			defer w.rst()
		}
		return true
	}) {
		t.Error("HAProxy goes on using a replica that is not ready")
	}
	for _, pair := range open {
		pair[0].text("down")
		pair[1].wantText("down")
	}
	for _, end := range ends {
		end.mu.Lock()
		if end.checks == 0 || len(end.faults) != 0 {
			t.Errorf("%d health checks with a header, %v", end.checks, end.faults)
		}
		end.mu.Unlock()
	}
}
