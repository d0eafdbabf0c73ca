package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// proxyBar is what a proxied request may cost in terms of nginx.
	proxyBar = 1.0

	proxyConnections = 64
)

// runProxy compares plain HTTP proxying of a 1 KiB answer over kept-alive
// connections: ours through a pass-through route, nginx with one worker. Origin
// and wrk share the generator's core.
func runProxy(l *lab, r *report) error {
	for _, program := range []string{"nginx", "wrk"} {
		if _, err := exec.LookPath(program); err != nil {
			r.note("proxy: not run, %s is not installed (scripts/deps does that)", program)
			return nil
		}
	}
	origin, err := l.startOrigin()
	if err != nil {
		return err
	}
	defer origin.stop()

	nginx, err := l.startNginx(origin.port)
	if err != nil {
		return err
	}
	defer nginx.stop()
	servers := []*server{nginx}
	if _, ok := l.target(sluiceName); ok {
		ours, err := l.startRelay(origin.port)
		if err != nil {
			return err
		}
		defer ours.stop()
		servers = append(servers, ours)
	}
	for _, s := range servers {
		if err := verifyGet(s); err != nil {
			return err
		}
	}

	costs := make(map[string][]float64)
	for round := range l.plan.rounds {
		for i := range servers {
			s := servers[(i+round)%len(servers)] // turns, as in alternate
			cost, err := l.requestCost(s)
			if err != nil {
				return err
			}
			costs[s.name] = append(costs[s.name], cost)
			r.raw("proxy", "round %d, %s: srvcpu_s_per_M=%.3f", round+1, s.name, cost)
		}
	}
	t := newTable("CPU seconds per million requests", "median", "× nginx")
	t.add("nginx", number(median(costs["nginx"])))
	if ours := costs[sluiceName]; ours != nil {
		ratio := median(ratios(ours, costs["nginx"]))
		t.add(sluiceName, number(median(ours)), number(ratio))
		r.check("pass-through request of 1 KiB, CPU, × nginx", ratio, proxyBar)
	}
	r.section(fmt.Sprintf("HTTP proxying, 1 KiB answer, %d kept-alive connections", proxyConnections), t.String())
	return nil
}

func (l *lab) startOrigin() (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	return l.startProcess("origin", port, l.cores.generator, []string{l.tool("origin"), strconv.Itoa(port)}, nil)
}

// verifyGet asks for one answer and compares it with the origin's.
func verifyGet(s *server) error {
	r, err := http.NewRequest("GET", fmt.Sprintf("http://127.0.0.1:%d/", s.port), nil)
	if err != nil {
		return err
	}
	r.Host = relayedHost
	res, err := control.Do(r)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != 200 || !bytes.Equal(body, originAnswer)) {
		err = fmt.Errorf("status %d and %d bytes are not the origin's answer", res.StatusCode, len(body))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// nginxConfig has what a fair comparison needs: no log, kept-alive connections
// to both sides that are never retired, and the headers a proxy adds.
const nginxConfig = `
daemon off;
master_process off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log warn;
events { worker_connections 4096; }
http {
	access_log off;
	keepalive_requests 1000000000;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	upstream origin {
		server 127.0.0.1:%[3]d;
		keepalive 256;
		keepalive_requests 1000000000;
	}
	server {
		listen 127.0.0.1:%[2]d;
		location / {
			proxy_pass http://origin;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
			proxy_set_header X-Forwarded-Proto $scheme;
			proxy_set_header X-Forwarded-Host $host;
		}
	}
}
`

func (l *lab) startNginx(origin int) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(l.bin, "nginx")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf(nginxConfig, dir, port, origin)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	argv := []string{"nginx", "-p", dir, "-c", config, "-e", filepath.Join(dir, "error.log")}
	return l.startProcess("nginx", port, l.cores.server, argv, nil)
}

// requestCost runs wrk for a warm-up and for a measurement, and returns the
// server's CPU seconds per million requests of the second.
func (l *lab) requestCost(s *server) (float64, error) {
	if _, err := l.wrk(s, l.plan.warmUp); err != nil {
		return 0, err
	}
	before, err := cpuSeconds(s.pid())
	if err != nil {
		return 0, err
	}
	requests, err := l.wrk(s, l.plan.seconds)
	if err != nil {
		return 0, err
	}
	after, err := cpuSeconds(s.pid())
	if err != nil {
		return 0, err
	}
	return (after - before) / requests * 1e6, s.check()
}

// wrk loads the server and returns how many requests were answered well. It
// counts whole seconds only, so less than one becomes one.
func (l *lab) wrk(s *server, seconds float64) (float64, error) {
	whole := max(1, int(seconds+0.5))
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(whole+30)*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "taskset", "-c", l.cores.generator, "wrk",
		"-t1", fmt.Sprintf("-c%d", proxyConnections), fmt.Sprintf("-d%ds", whole),
		"-H", "Host: "+relayedHost, fmt.Sprintf("http://127.0.0.1:%d/", s.port))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("wrk against %s: %w: %s", s.name, err, out.String())
	}
	return parseWrk(s.name, out.String())
}

var wrkRequests = regexp.MustCompile(`(\d+) requests in `)

// parseWrk finds the count of requests; any that failed make the run void.
func parseWrk(name, out string) (float64, error) {
	for _, fault := range []string{"Non-2xx", "Socket errors"} {
		if strings.Contains(out, fault) {
			return 0, fmt.Errorf("wrk against %s saw faults: %s", name, out)
		}
	}
	m := wrkRequests.FindStringSubmatch(out)
	if m == nil || m[1] == "0" {
		return 0, fmt.Errorf("wrk against %s answered nothing: %s", name, out)
	}
	return strconv.ParseFloat(m[1], 64)
}
