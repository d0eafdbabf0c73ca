package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// debianProgram finds a program of Debian's, some of which live where a user's PATH
// does not look.
func debianProgram(t testing.TB, name string) string {
	t.Helper()
	for _, name := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("%s is not installed: scripts/deps test, scripts/deps accept", name)
	return ""
}

// rewritten is a shipped file with addresses and paths of the test; each of the
// old ones must be there.
func rewritten(t testing.TB, file string, oldnew ...string) string {
	t.Helper()
	text, err := os.ReadFile(deployDir + "/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(oldnew); i += 2 {
		if !bytes.Contains(text, []byte(oldnew[i])) {
			t.Fatalf("%s does not say %q any more", file, oldnew[i])
		}
	}
	return strings.NewReplacer(oldnew...).Replace(string(text))
}

// savedFile writes a file of the test's and returns its path.
func savedFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// mustPass runs a program that only checks something.
func mustPass(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// startProgram runs a program until the end of the test.
func startProgram(t testing.TB, env []string, name string, args ...string) *logLines {
	t.Helper()
	out := new(logLines)
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s says: %s", name, out)
		}
	})
	return out
}

// untilListening waits for somebody at addr.
func untilListening(t testing.TB, addr string, log fmt.Stringer) {
	t.Helper()
	if !poll(func() bool {
		c, err := dialTCP(addr, wsDial{})
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		t.Fatalf("nobody listens at %s: %s", addr, log)
	}
}

// nginxCertificate writes a certificate and its key.
func nginxCertificate(t testing.TB, dir, name string) (cert, key string) {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &priv.PublicKey, priv)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	cert = savedFile(t, dir, name+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	key = savedFile(t, dir, name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pk})))
	return cert, key
}

// behindProxy is what stands behind the proxy of a test: a relay, an encrypting
// relay with a plain route, and an origin that streams.
type behindProxy struct {
	relay     string
	mte       string
	more      chan struct{} // lets the stream go on
	origin    string
	forwarded chan string // X-Forwarded-For as the origin sees it
}

const proxiedHost = "api.example"

func startBehindProxy(t testing.TB) behindProxy {
	t.Helper()
	b := behindProxy{more: make(chan struct{}), forwarded: make(chan string, 10)}
	b.origin = startTestOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/upload":
			n, err := io.Copy(io.Discard, r.Body)
			b.forwarded <- r.Header.Get("X-Forwarded-For")
			fmt.Fprint(w, n, err)
		case "/stream":
			fmt.Fprintln(w, "first")
			w.(http.Flusher).Flush()
			select {
			case <-b.more:
			case <-r.Context().Done():
			}
			fmt.Fprintln(w, "second")
		}
	}))
	domains, _ := json.Marshal(map[string]any{proxiedHost: map[string]any{
		"upstream": b.origin, "client_id_secret": mteSecret(proxiedHost), "pass_through_routes": []string{"/*"},
	}})
	port := nextPort()
	b.mte = "127.0.0.1:" + port
	b.relay = serve(t, "PORT="+port, "DOMAIN_MAP="+string(domains), "DRAIN_SECONDS=0").addr
	return b
}

// throughProxy looks for what proxies are known to break.
func (b behindProxy) throughProxy(t testing.TB, relay, mte string) {
	t.Helper()
	// Upgrades, and both directions after them.
	var open []*wsClient
	for i := range 8 {
		sid := fmt.Sprint("session-", i)
		var s, c *wsClient
		for role, at := range map[string]**wsClient{"server": &s, "client": &c} {
			w, err := dialWS(t, relay, wsQuery(sid, role, 1, "-"), sid+" "+role)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.rst)
			*at = w
		}
		c.text("up")
		s.wantText("up")
		s.bin(make([]byte, 100_000))
		c.want(opBin, make([]byte, 100_000))
		open = append(open, s, c)
	}
	// The close frames come through.
	for _, w := range open {
		w.raw(closeFrame(1000, "bye"))
		w.wantCloseFrame(1000, "")
	}
	// A body larger than the 1 MiB that nginx allows by itself.
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	do := func(method, path string, body io.Reader) *http.Response {
		t.Helper()
		r, err := http.NewRequest(method, "http://"+mte+path, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = proxiedHost
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	res := do("POST", "/upload", bytes.NewReader(make([]byte, 3<<20)))
	if text, err := io.ReadAll(res.Body); string(text) != "3145728 <nil>" {
		t.Fatalf("the upload: %d %q %v", res.StatusCode, text, err)
	}
	if got, _, _ := strings.Cut(<-b.forwarded, ","); got != "127.0.0.1" {
		t.Errorf("X-Forwarded-For begins with %q", got)
	}
	// Nothing is held back: the second line is only sent when the first is here.
	lines := bufio.NewReader(do("GET", "/stream", nil).Body)
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Fatalf("the stream begins with %q %v", line, err)
	}
	select {
	case b.more <- struct{}{}:
	case <-time.After(patience):
		t.Fatal("the origin is not there any more")
	}
	if line, err := lines.ReadString('\n'); line != "second\n" {
		t.Errorf("the stream goes on with %q %v", line, err)
	}
}

// reroutes answers every upgrade as a replica does that does not own the session.
func reroutes(t testing.TB, target string) (addr string) {
	t.Helper()
	url := startTestOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ready" {
			return
		}
		w.Header().Set("X-Reroute-Target", target)
		w.WriteHeader(http.StatusConflict)
	}))
	return strings.TrimPrefix(url, "http://")
}

func TestDeployNginx(t *testing.T) {
	t.Parallel()
	nginx := debianProgram(t, "nginx")
	b := startBehindProxy(t)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // its workers are nobody's
		t.Fatal(err)
	}
	main := func(name, snippet string) (conf string) {
		return savedFile(t, dir, name, "daemon off;\nmaster_process off;\npid "+dir+"/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"+
			"client_body_temp_path "+dir+"/b;\nproxy_temp_path "+dir+"/p;\nfastcgi_temp_path "+dir+"/f;\nuwsgi_temp_path "+dir+"/u;\nscgi_temp_path "+dir+"/s;\n"+snippet+"}\n")
	}
	// As it is shipped, with certificates that exist.
	rc, rk := nginxCertificate(t, dir, "relay.example")
	ac, ak := nginxCertificate(t, dir, "api.example")
	tls := main("tls.conf", rewritten(t, "nginx/sluice.conf",
		"listen 443 ssl;", "listen 127.0.0.1:"+nextPort()+" ssl;",
		"/etc/ssl/sluice/relay.pem", rc, "/etc/ssl/sluice/relay.key", rk, "/etc/ssl/sluice/api.pem", ac, "/etc/ssl/sluice/api.key", ak))
	mustPass(t, nginx, "-t", "-q", "-p", dir, "-c", tls)

	// The same on plain ports, one replica knowing that the other owns everything.
	run := func(other string) (addr string) {
		port := nextPort()
		conf := main("run-"+port+".conf", rewritten(t, "nginx/sluice.conf",
			"listen 443 ssl;", "listen 127.0.0.1:"+port+";",
			"    ssl_certificate     /etc/ssl/sluice/relay.pem;\n", "", "    ssl_certificate_key /etc/ssl/sluice/relay.key;\n", "",
			"    ssl_certificate     /etc/ssl/sluice/api.pem;\n", "", "    ssl_certificate_key /etc/ssl/sluice/api.key;\n", "",
			"10.0.0.11:4000", other, "10.0.0.12:4000", b.relay,
			"    server 10.0.0.11:8080 max_fails=2 fail_timeout=5s;\n", "", "10.0.0.12:8080", b.mte))
		log := startProgram(t, nil, nginx, "-p", dir, "-c", conf)
		untilListening(t, "127.0.0.1:"+port, log)
		return "127.0.0.1:" + port
	}
	addr := run(reroutes(t, "b"))
	b.throughProxy(t, addr, addr)
	// The inside stays inside.
	if a := httpDo(t, addr, "GET", "/metrics"); a.status != 404 {
		t.Errorf("/metrics from outside: %d", a.status)
	}

	// An owner that is not in the list is not connected to.
	addr = run(reroutes(t, "127.0.0.1:1"))
	refused := 0
	for i := range 32 {
		if c, err := dialWS(t, addr, wsQuery(fmt.Sprint(i), "server", 1, "-"), "socket"); err == nil {
			c.rst()
		} else if no, ok := err.(*refusedError); ok && no.status == 503 {
			refused++
		} else {
			t.Fatal(err)
		}
	}
	if refused == 0 || refused == 32 {
		t.Errorf("%d of 32 sessions are refused: the hash does not spread them", refused)
	}
}

func TestDeployCaddy(t *testing.T) {
	t.Parallel()
	caddy := debianProgram(t, "caddy")
	b := startBehindProxy(t)
	dir := t.TempDir()
	home := []string{"HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "XDG_DATA_HOME=" + dir}
	cmd := exec.Command(caddy, "validate", "--adapter", "caddyfile", "--config", deployDir+"/caddy/Caddyfile")
	cmd.Env = append(os.Environ(), home...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	relay, mte := nextPort(), nextPort()
	_, health, _ := net.SplitHostPort(b.relay)
	conf := savedFile(t, dir, "Caddyfile", "{\n\tadmin off\n}\n"+rewritten(t, "caddy/Caddyfile",
		"relay.example {", "http://:"+relay+" {\n\tbind 127.0.0.1", "api.example {", "http://:"+mte+" {\n\tbind 127.0.0.1",
		"10.0.0.11:4000 10.0.0.12:4000", b.relay, "10.0.0.11:8080 10.0.0.12:8080", b.mte, "health_port 4000", "health_port "+health))
	log := startProgram(t, home, caddy, "run", "--adapter", "caddyfile", "--config", conf)
	untilListening(t, "127.0.0.1:"+mte, log)
	b.throughProxy(t, "127.0.0.1:"+relay, "127.0.0.1:"+mte)
	if a := httpDo(t, "127.0.0.1:"+relay, "GET", "/metrics"); a.status != 404 {
		t.Errorf("/metrics from outside: %d", a.status)
	}
}
