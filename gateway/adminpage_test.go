package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/loop"
)

// value is an expression for the text of a row's first cell.
func value(name string) string {
	return fmt.Sprintf(`Array.from(document.querySelectorAll("tbody tr")).filter(r => r.querySelector("th").textContent === %q).map(r => r.querySelector("td span").textContent)[0]`, name)
}

// pagedNode is a node with both roles that has something to show.
func pagedNode(t *testing.T) (n *liveNode, relay *node) {
	origin := startTestOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("hello")) }))
	n = startLive(t, domainMap("secret-host.test", origin))
	n.descriptors, n.goroutines = 1<<30, 1<<30 // the origin's connections
	relay = n.relayOf()
	t.Cleanup(func() {
		for _, c := range relay.clients {
			c.rst()
		}
		if err := relay.emptied(); err != nil {
			t.Error(err)
		}
	})
	return n, relay
}

// What a stock browser makes of the page and of the relay.
func TestInBrowser(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	f := func(name string, test func(*testing.T, *browser)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
	f("page without script", pageWithoutScript)
	f("page with script", pageLive)
	f("page with everything", pageWithEverything)
	f("WebSocket", browserWebSocket)
	f("wss", browserTLS)
	f("wss through HAProxy", browserBehindHAProxy)
}

// The page has its numbers without script.
func pageWithoutScript(t *testing.T, b *browser) {
	n, relay := pagedNode(t)
	s, c := relay.v1pair()
	c.text("hello")
	s.wantText("hello")
	if _, err := newMTEClient(t, n.mteNode, "secret-host.test").pair(); err != nil {
		t.Fatal(err)
	}
	p := b.open(t, "http://"+n.admin+"/", withoutScript)
	f := func(name, want string) {
		t.Helper()
		if got := p.eval(value(name)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	f("WebSockets", "2 of 20,000")
	f("Sessions", "1")
	f("Ingress budget", "0 B of 512 MiB")
	f("Pairs", "1 of 1,000,000")
	f("Applied versions of the live settings", "1")
	f("auth", "1")
	f("pair", "1")
	if got := p.eval(`document.getElementById("state").textContent + document.getElementById("why").textContent`); got != "ready" {
		t.Errorf("state %q", got)
	}
	if got := p.eval(`document.querySelectorAll("figure polyline").length`); got != "14" {
		t.Errorf("%s charts", got)
	}
	if got := p.eval(`document.body.dataset.updates === undefined`); got != "true" {
		t.Error("a script ran")
	}
}

// With script the numbers follow, without loading the page again; dark and light
// differ, a phone needs no scrolling to the side, nothing is asked of anybody
// else, the console stays empty, and nothing tells of a peer.
func pageLive(t *testing.T, b *browser) {
	n, relay := pagedNode(t)
	sid := "the-id-of-nobody-elses-session"
	relay.v1("server", sid)
	p := b.open(t, "http://"+n.admin+"/")
	p.eval(`window.same = true`)
	p.until(value("WebSockets"), "1 of 20,000")
	c := relay.v1("client", sid)
	relay.refused("role=server&v=3&serverId=x", 400, httpDo(t, n.relay, "GET", "/ws?role=server&v=3&serverId=x", "Connection:Upgrade", "Upgrade:websocket", "Sec-WebSocket-Version:13", "Sec-WebSocket-Key:"+key).body)
	p.until(value("WebSockets"), "2 of 20,000")
	p.until(value("bad request"), "2")
	c.leave(1000)
	p.until(value("WebSockets"), "1 of 20,000")
	p.until(`Array.from(document.querySelectorAll("tbody tr")).filter(r => r.querySelector("th").textContent === "1000")[0].hidden`, "false")
	first := p.eval(`document.body.dataset.sample`)
	if !poll(func() bool {
		return p.eval(`document.querySelector("polyline").getAttribute("points").split(" ").length > 1`) == "true"
	}) {
		t.Error("the chart stands still")
	}
	n.g.SetDraining(true)
	p.until(`document.getElementById("state").textContent + ", " + document.getElementById("why").textContent`, "draining, not ready")
	p.until(`document.title`, "Sluice: draining")
	n.g.SetDraining(false)
	p.until(`document.getElementById("state").textContent`, "ready")
	if p.eval(`window.same === true && document.body.dataset.updates > 2`) != "true" {
		t.Error("the page was loaded again")
	}
	t.Logf("the first sample was %s", first)

	const background = `getComputedStyle(document.body).backgroundColor`
	p.scheme("light")
	light := p.eval(background)
	p.scheme("dark")
	if dark := p.eval(background); dark == light {
		t.Errorf("dark and light are both %s", dark)
	}
	for _, width := range []int{320, 360, 800, 1600} {
		p.size(width, 800, width < 500)
		if got := p.eval(`document.documentElement.scrollWidth <= window.innerWidth`); got != "true" {
			t.Errorf("%d pixels wide it needs %s", width, p.eval(`document.documentElement.scrollWidth`))
		}
	}

	requests, errors := p.seen()
	for _, url := range requests {
		if !strings.HasPrefix(url, "http://"+n.admin+"/") && url != "about:blank" {
			t.Errorf("asked for %s", url)
		}
	}
	if len(requests) < 5 {
		t.Errorf("only %q were asked for", requests)
	}
	for _, e := range errors {
		t.Errorf("console: %s", e)
	}
	text := p.eval(`document.documentElement.outerHTML`)
	for _, secret := range []string{sid, "secret-host", "127.0.0.1", n.addr} {
		if strings.Contains(text, secret) {
			t.Errorf("the page tells %q", secret)
		}
	}
}

// What the page's answers say to a browser.
func TestAdminPageHeaders(t *testing.T) {
	n, _ := pagedNode(t)
	for _, path := range []string{"/", "/page.css", "/page.js", "/icon.svg", "/live.json"} {
		a := httpDo(t, n.admin, "GET", path)
		if csp := a.header.Get("Content-Security-Policy"); a.status != 200 || !strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") ||
			a.header.Get("X-Content-Type-Options") != "nosniff" || a.body == "" {
			t.Errorf("GET %s: %d %v", path, a.status, a.header)
		}
		if a := httpDo(t, n.admin, "HEAD", path); a.status != 200 || a.body != "" {
			t.Errorf("HEAD %s: %d, %d bytes", path, a.status, len(a.body))
		}
		if a := httpDo(t, n.admin, "POST", path); a.status != 405 || a.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: %d", path, a.status)
		}
	}
	for _, path := range []string{"/page.html", "/page.go", "/index.html", "/live"} {
		if a := httpDo(t, n.admin, "GET", path); a.status != 404 {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
	if a := httpDo(t, n.admin, "GET", "/drain"); a.status != 405 || a.header.Get("Allow") != "POST, DELETE" {
		t.Errorf("GET /drain: %d, allows %q", a.status, a.header.Get("Allow"))
	}
	// A page whose name leads here is none of ours; checks may name what they like.
	for path, want := range map[string]int{"/": 403, "/live.json": 403, "/metrics": 403, "/drain": 403, "/health": 200, "/ready": 200} {
		if a := httpDo(t, n.admin, "GET", path, "Host:admin.example"); a.status != want {
			t.Errorf("GET %s of admin.example: %d", path, a.status)
		}
		if a := httpDo(t, n.admin, "GET", path, "Host:localhost:1"); a.status == 403 {
			t.Errorf("GET %s of localhost: %d", path, a.status)
		}
	}
	// The one thing that changes something keeps its rule.
	if a := httpDo(t, n.admin, "POST", "/drain"); a.status != 403 {
		t.Errorf("POST /drain without its header: %d", a.status)
	}
	if a := httpDo(t, n.admin, "POST", "/drain", "X-Sluice-Admin:1", "Host:admin.example"); a.status != 403 {
		t.Errorf("POST /drain with a name as its host: %d", a.status)
	}
}

// The page answers while an event loop is stuck, and says so.
func TestAdminPageOfAStuckLoop(t *testing.T) {
	n := startNode(t, "CAPACITY_MUTATION_TIMEOUT_MS=3600000")
	release := make(chan struct{})
	defer close(release)
	n.g.Loops()[1].Post(loop.Func(func(*loop.Loop) { <-release }))
	var page string
	if !poll(func() bool {
		page = httpDo(t, n.admin, "GET", "/").body
		return strings.Contains(page, `<p id="why">an event loop does not answer</p>`)
	}) {
		t.Fatalf("never told:\n%s", page)
	}
	if !strings.Contains(page, `<p id="state" class="not">not ready</p>`) {
		t.Error("the page says that the node is ready")
	}
	// Its turn is not over, and counts.
	series := `sluice_loop_longest_turn_seconds{loop="1"} `
	if !poll(func() bool {
		_, rest, _ := strings.Cut(httpDo(t, n.admin, "GET", "/metrics").body, series)
		v, _, _ := strings.Cut(rest, "\n")
		seconds, err := strconv.ParseFloat(v, 64)
		return err == nil && seconds > 1
	}) {
		t.Error("the longest turn is not that of the stuck loop")
	}
	// What the ledger cannot say is left open, not 0.
	if !strings.Contains(page, "– of 20,000") {
		t.Error("the page counts sockets that nobody has counted")
	}
}

// Samples take the place of older ones.
func TestAdminPageHistoryIsBounded(t *testing.T) {
	n := startNode(t)
	const quarter = 180
	fill := func() {
		for range 2 * quarter {
			n.g.Sample()
		}
	}
	fill()
	before := heapAfter()
	fill()
	if now := heapAfter(); now > before+512<<10 {
		t.Errorf("the heap grew from %d to %d bytes", before, now)
	}
	a := httpDo(t, n.admin, "GET", "/live.json")
	var u struct{ Charts [][3]string }
	if err := json.Unmarshal([]byte(a.body), &u); err != nil || len(u.Charts) == 0 {
		t.Fatalf("%v, %.200s", err, a.body)
	}
	if points := strings.Count(u.Charts[0][2], ","); points != quarter {
		t.Errorf("%d points, expected %d", points, quarter)
	}
}

// A stock browser talks through the relay.
func browserWebSocket(t *testing.T, b *browser) {
	n := startNode(t)
	s := n.v1("server", "a-browser")
	p := b.open(t, startTestOrigin(t, http.NotFoundHandler())+"/")
	p.await(`(() => { window.got = []; window.ws = new WebSocket("ws://` + n.addr + `/ws?` + wsQuery("a-browser", "client", 1, "-") + `");
		ws.binaryType = "arraybuffer";
		ws.onmessage = m => got.push(typeof m.data === "string" ? m.data : m.data.byteLength);
		ws.onclose = e => got.push(e.code + " " + e.reason);
		return new Promise((ok, no) => { ws.onopen = () => ok("open"); ws.onerror = () => no("refused"); }); })()`)
	p.eval(`ws.send("from the browser ✓")`)
	s.wantText("from the browser ✓")
	s.text("to the browser ✓")
	p.until(`got.join()`, "to the browser ✓")
	p.eval(`ws.send(new Uint8Array(100000))`)
	s.want(opBin, make([]byte, 100000))
	s.bin(make([]byte, 70000))
	p.until(`got.join()`, "to the browser ✓,70000")
	p.eval(`ws.close(4001, "done")`)
	p.until(`got.join()`, "to the browser ✓,70000,4001 ")
}

// SLUICE_SCREENSHOTS=1 makes the README's pictures anew.
func TestAdminPagePictures(t *testing.T) {
	if os.Getenv("SLUICE_SCREENSHOTS") == "" {
		t.Skip("set SLUICE_SCREENSHOTS=1 to make the README's pictures anew")
	}
	b := startBrowser(t)
	n, relay := pagedNode(t)
	var kinds []loadKind
	kinds = append(kinds, loadKind{"messages", 20, func(w int) func(int) error {
		s, c := relay.v1pair()
		return func(round int) error {
			time.Sleep(time.Duration(1+w+round/50%9) * time.Millisecond)
			if err := c.write(frame(opBin, true, make([]byte, 1000*(1+round%5)))); err != nil {
				return err
			}
			_, err := s.message(patience)
			return err
		}
	}}, loadKind{"requests", 4, func(int) func(int) error {
		pair, err := newMTEClient(t, n.mteNode, "secret-host.test").pair()
		if err != nil {
			t.Fatal(err)
		}
		return func(round int) error {
			time.Sleep(time.Duration(5+round/40%5*5) * time.Millisecond)
			_, err := pair.get("x")
			return err
		}
	}})
	stop := runLoad(t, kinds)
	for range 30 {
		relay.v1("client", relay.sid()).leave(1000)
		time.Sleep(4 * time.Second)
	}
	p := b.open(t, "http://"+n.admin+"/")
	p.size(1000, 780, false)
	for _, scheme := range []string{"light", "dark"} {
		p.scheme(scheme)
		if err := os.WriteFile(filepath.Join("adminpage", scheme+".png"), smaller(t, p.picture()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stop()
}

// smaller is a picture with a palette of its most frequent colours, which is all
// that text and lines need.
func smaller(t *testing.T, b []byte) []byte {
	in, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	count := make(map[color.Color]int)
	box := in.Bounds()
	for y := range box.Dy() {
		for x := range box.Dx() {
			count[in.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] })
	out := image.NewPaletted(box, colours[:min(len(colours), 64)])
	draw.Draw(out, box, in, box.Min, draw.Src)
	var buf bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&buf, out); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
