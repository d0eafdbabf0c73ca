package gateway_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fasthttp/websocket"
)

// A browser is a Chromium without a window, driven by its DevTools protocol. It
// has a profile of its own and talks to nobody but the pages that a test opens.
type browser struct {
	ws   *websocket.Conn
	send sync.Mutex

	mu      sync.Mutex
	next    int
	waiting map[int]chan devtoolsMessage
	tabs    map[string]*tab
}

// A devtoolsMessage is an answer, or an event of a session.
type devtoolsMessage struct {
	ID        int             `json:"id,omitempty"`
	Session   string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Exception json.RawMessage `json:"error,omitempty"`
}

// startBrowser starts Debian's Chromium. Without it the test is skipped, but not
// for root, who can install it.
func startBrowser(t testing.TB) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getuid() == 0 {
			t.Fatal("there is no chromium; scripts/deps test installs it")
		}
		t.Skip("there is no chromium; scripts/deps test says how to get it")
	}
	profile, err := os.MkdirTemp("", "sluice-browser-")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--remote-debugging-port=0", "--user-data-dir="+profile, trustsTestTLS(t), "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+profile, "DBUS_SESSION_BUS_ADDRESS=disabled:")
	out := new(strings.Builder)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		cmd.Wait()
		close(gone)
	}()
	b := &browser{waiting: make(map[int]chan devtoolsMessage), tabs: make(map[string]*tab)}
	t.Cleanup(func() {
		if b.ws != nil {
			b.ws.WriteJSON(map[string]any{"id": 1 << 30, "method": "Browser.close"})
		}
		select {
		case <-gone:
		case <-time.After(patience / 4):
			cmd.Process.Kill()
			<-gone
		}
		if b.ws != nil {
			b.ws.Close()
		}
		// What the browser started may write for another moment.
		poll(func() bool { return os.RemoveAll(profile) == nil })
	})
	var port, path string
	if !poll(func() bool {
		text, err := os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
		port, path, _ = strings.Cut(strings.TrimSpace(string(text)), "\n")
		select {
		case <-gone:
			return true
		default:
			return err == nil && path != ""
		}
	}) || path == "" {
		t.Fatalf("chromium does not come up: %s", out)
	}
	if b.ws, _, err = websocket.DefaultDialer.Dial("ws://127.0.0.1:"+port+path, nil); err != nil {
		t.Fatal(err)
	}
	go b.read()
	return b
}

// read hands out what the browser says, until it ends.
func (b *browser) read() {
	for {
		var m devtoolsMessage
		if err := b.ws.ReadJSON(&m); err != nil {
			b.mu.Lock()
			for _, w := range b.waiting {
				close(w)
			}
			b.waiting = nil
			b.mu.Unlock()
			return
		}
		b.mu.Lock()
		w, tab := b.waiting[m.ID], b.tabs[m.Session]
		if m.ID != 0 {
			delete(b.waiting, m.ID)
		}
		b.mu.Unlock()
		switch {
		case m.ID != 0 && w != nil:
			w <- m
		case m.ID == 0 && tab != nil:
			tab.event(m)
		}
	}
}

// call makes a call of the protocol and reads its result into result, unless nil.
func (b *browser) call(session, method string, params, result any) error {
	w := make(chan devtoolsMessage, 1)
	b.mu.Lock()
	if b.waiting == nil {
		b.mu.Unlock()
		return fmt.Errorf("%s: the browser is gone", method)
	}
	b.next++
	id := b.next
	b.waiting[id] = w
	b.mu.Unlock()
	message := map[string]any{"id": id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if session != "" {
		message["sessionId"] = session
	}
	b.send.Lock()
	err := b.ws.WriteJSON(message)
	b.send.Unlock()
	if err != nil {
		return err
	}
	select {
	case m, ok := <-w:
		if !ok || m.Exception != nil {
			return fmt.Errorf("%s: %s", method, m.Exception)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-time.After(patience):
		return fmt.Errorf("%s: no answer", method)
	}
}

// A tab is one page, and what became known of it.
type tab struct {
	t       testing.TB
	b       *browser
	session string

	mu       sync.Mutex
	requests []string // URLs
	errors   []string // of the console
}

// open opens a page in a tab of its own for a test, and waits until it has loaded.
// before prepares the tab.
func (b *browser) open(t testing.TB, url string, before ...func(*tab)) *tab {
	t.Helper()
	var target struct{ TargetID string }
	var attached struct{ SessionID string }
	p := &tab{t: t, b: b}
	p.must("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	t.Cleanup(func() { b.call("", "Target.closeTarget", map[string]any{"targetId": target.TargetID}, nil) })
	p.must("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
	b.mu.Lock()
	b.tabs[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		p.must(domain+".enable", nil, nil)
	}
	for _, f := range before {
		f(p)
	}
	p.must("Page.navigate", map[string]any{"url": url}, nil)
	if !poll(func() bool { return p.eval(`document.readyState + location.href`) == "complete"+url }) {
		t.Fatalf("%s does not load", url)
	}
	return p
}

func (p *tab) must(method string, params, result any) {
	p.t.Helper()
	if err := p.b.call(p.session, method, params, result); err != nil {
		p.t.Fatal(err)
	}
}

// event notes requests and whatever a console would show in red.
func (p *tab) event(m devtoolsMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var e struct {
		Type    string
		Request struct{ URL string }
		Entry   struct{ Level, Text, URL string }
	}
	json.Unmarshal(m.Params, &e)
	switch m.Method {
	case "Network.requestWillBeSent", "Network.webSocketCreated":
		p.requests = append(p.requests, e.Request.URL)
	case "Runtime.exceptionThrown":
		p.errors = append(p.errors, string(m.Params))
	case "Runtime.consoleAPICalled":
		if e.Type == "error" || e.Type == "warning" {
			p.errors = append(p.errors, string(m.Params))
		}
	case "Log.entryAdded":
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			p.errors = append(p.errors, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// eval returns what an expression comes to, as text.
func (p *tab) eval(expression string) string {
	p.t.Helper()
	return p.evaluate(expression, false)
}

// await is eval of a promise that is kept.
func (p *tab) await(expression string) string {
	p.t.Helper()
	return p.evaluate(expression, true)
}

func (p *tab) evaluate(expression string, await bool) string {
	p.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	var err error
	poll(func() bool {
		err = p.b.call(p.session, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": await, "returnByValue": true}, &r)
		// A page that is just being loaded has no place for it.
		return err == nil || !strings.Contains(err.Error(), "context") && !strings.Contains(err.Error(), "navigated")
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if x := r.ExceptionDetails; x != nil {
		p.t.Fatalf("%s: %s %s", expression, x.Text, x.Exception.Description)
	}
	return fmt.Sprint(r.Result.Value)
}

// until waits for an expression to come to a value.
func (p *tab) until(expression, want string) {
	p.t.Helper()
	var got string
	if !poll(func() bool { got = p.eval(expression); return got == want }) {
		p.t.Fatalf("%s is %q, expected %q", expression, got, want)
	}
}

// seen returns what the page asked for and what its console shows.
func (p *tab) seen() (requests, errors []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.requests...), append([]string(nil), p.errors...)
}

// Preparations of a tab.

func withoutScript(p *tab) {
	p.must("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
}

func (p *tab) scheme(name string) {
	p.t.Helper()
	p.must("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": name}}}, nil)
}

func (p *tab) size(width, height int, mobile bool) {
	p.t.Helper()
	p.must("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}, nil)
}

// picture returns what the tab shows, as PNG.
func (p *tab) picture() []byte {
	p.t.Helper()
	var r struct{ Data []byte }
	p.must("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
	return r.Data
}
