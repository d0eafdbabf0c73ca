package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// testLab prepares the machine for the shortest of measurements, or skips the
// test where nothing can be measured.
func testLab(t *testing.T) *lab {
	t.Helper()
	for _, program := range []string{"gcc", "taskset"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	if _, err := pickCores(); err != nil {
		t.Skip(err)
	}
	p, err := parsePlan([]string{"-short", "-seconds", "0.5", "-warm", "0.1", "-targets", floorName})
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLab(p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The whole way of a figure, with the floor in the place of ours: tools are
// built, servers started and pinned, bytes verified, figures taken, condensed
// and held against the bar.
func TestMeasureFloorAgainstItself(t *testing.T) {
	l := testLab(t)
	ours := targetByName(floorName)
	ours.name = sluiceName
	l.targets = append(l.targets, ours)

	r := newReport(l)
	for _, c := range []cell{cells[0], cells[3]} {
		f, err := l.measureCell(r, c)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, ok := find(f, sluiceName)
		if !ok || got.median <= 0 || got.ratio <= 0 {
			t.Errorf("%s: got %+v, want a cost and a ratio", c.name, got)
		}
		checkCell(r, c, f)
	}
	if len(r.checks) != 2 {
		t.Errorf("%d bars were checked, want 2", len(r.checks))
	}
	if len(r.lines["throughput"]) != 4 {
		t.Errorf("raw lines are %q, want one per server and cell", r.lines["throughput"])
	}
	summary := r.markdown()
	if !strings.Contains(summary, "### Bars") || !strings.Contains(summary, cells[3].name) {
		t.Errorf("the summary lacks the bars:\n%s", summary)
	}
}

// A server that refuses the generator must end the run with its reason, not
// hang it or count as fast.
func TestMeasureRefusal(t *testing.T) {
	l := testLab(t)
	// The origin speaks HTTP, but does not upgrade.
	s, err := l.startOrigin()
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	err = l.verify(s, 64, 1)
	if err == nil || !strings.Contains(err.Error(), "upgrade refused") {
		t.Errorf("got %v, want the refusal", err)
	}
}

// The load of the encrypted scenario, against the origin alone: every answer is
// compared, and a wrong one ends the run.
func TestHTTPLoad(t *testing.T) {
	l := testLab(t)
	origin, err := l.startOrigin()
	if err != nil {
		t.Fatal(err)
	}
	defer origin.stop()
	f := func(talkers []talker) (int, error) {
		t.Helper()
		g, err := dialLoad(origin.port, talkers)
		if err != nil {
			t.Fatal(err)
		}
		defer g.close()
		return g.run(l.cores.generator, 0.1)
	}
	if n, err := f(plainTalkers(relayedHost)); err != nil || n < relayedConnections {
		t.Errorf("%d answers, %v", n, err)
	}
	if n, err := f([]talker{newPlainTalker(relayedHost, nil)}); err != nil || n == 0 {
		t.Errorf("without a body: %d answers, %v", n, err)
	}
	if _, err := f([]talker{&pickyTalker{newPlainTalker(relayedHost, nil)}}); err == nil {
		t.Error("a wrong answer went unseen")
	}
}

// The steady load answers for every request that was due, however late.
func TestPacedLoad(t *testing.T) {
	l := testLab(t)
	origin, err := l.startOrigin()
	if err != nil {
		t.Fatal(err)
	}
	defer origin.stop()
	g, err := dialLoad(origin.port, plainTalkers(relayedHost)[:4])
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	for range 2 { // connections are left as they were found
		took, err := g.pace(l.cores.generator, 0.2, 1000)
		if err != nil || len(took) != 200 {
			t.Fatalf("%d answers, %v", len(took), err)
		}
		for _, d := range took {
			if d <= 0 {
				t.Fatalf("an answer took %v", d)
			}
		}
	}
}

// pickyTalker takes no answer for right.
type pickyTalker struct{ *plainTalker }

func (t *pickyTalker) take(b []byte) error {
	b = slices.Clone(b)
	b[0]++
	return t.plainTalker.take(b)
}

// The origin takes bodies that come in pieces, heads too, and hangs up on what it
// does not know.
func TestOriginBodies(t *testing.T) {
	l := testLab(t)
	origin, err := l.startOrigin()
	if err != nil {
		t.Fatal(err)
	}
	defer origin.stop()
	f := func(answered bool, pieces ...string) {
		t.Helper()
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", origin.port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		r := bufio.NewReader(c)
		for round := range 2 { // the connection is kept
			for _, p := range pieces {
				if _, err := c.Write([]byte(p)); err != nil {
					t.Fatal(err)
				}
			}
			res, err := http.ReadResponse(r, nil)
			if !answered {
				if err == nil {
					t.Errorf("%q was answered", pieces)
				}
				return
			}
			if err != nil {
				t.Fatalf("%q, round %d: %v", pieces, round, err)
			}
			if body, err := io.ReadAll(res.Body); err != nil || string(body) != string(originAnswer) {
				t.Errorf("%q: %d bytes, %v", pieces, len(body), err)
			}
		}
	}
	const head = "POST / HTTP/1.1\r\nHost: x\r\ncontent-length: 6\r\n\r\n"
	f(true, head+"abcdef")
	f(true, head, "abc", "def")
	f(true, strings.Split(head+"abcdef", "")...)
	f(true, "GET / HTTP/1.1\r\n\r\n")
	// More than was announced, chunks, a head without an end.
	f(false, head+"abcdefg")
	f(false, "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	f(false, strings.Repeat("x", 9000))
}

// Settings of the caller's shell must not reach the servers.
func TestServerEnvironment(t *testing.T) {
	t.Setenv("PASEO_RELAY_INGRESS_WEIGHT", "1")
	l := &lab{cores: cores{server: "0"}}
	s, err := l.startProcess("listener", 1, "0", []string{"env"}, []string{"LOOPS=1"})
	if err == nil {
		s.stop()
		t.Fatal("env was taken for a server")
	}
	lines := strings.Split(err.Error(), "\n")
	if !slices.Contains(lines, "LOOPS=1") {
		t.Errorf("LOOPS is missing: %q", lines)
	}
	if strings.Contains(err.Error(), "INGRESS_WEIGHT") {
		t.Errorf("a variable of the shell got through: %q", lines)
	}
}
