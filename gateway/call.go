package gateway

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"sluice/gateway/client"
)

const callUsage = `usage: sluice call [flags] URL

Sends one encrypted request through the encrypting relay that URL names, and
prints the answer's body. The path and query of URL are the origin's.

`

// headerList collects -H flags.
type headerList []client.Header

func (h *headerList) String() string { return "" }

func (h *headerList) Set(s string) error {
	name, value, ok := strings.Cut(s, ":")
	if !ok || strings.TrimSpace(name) == "" {
		return errors.New("want Name: value")
	}
	*h = append(*h, client.Header{Name: strings.ToLower(strings.TrimSpace(name)), Value: strings.TrimSpace(value)})
	return nil
}

// callFlags are what `sluice call` was asked to do.
type callFlags struct {
	method  string
	headers headerList
	data    string
	hasData bool // -d was given, which may be empty
	verbose bool
	include bool
	mte     bool
	host    string
	timeout time.Duration
	target  *url.URL
}

func parseCall(args []string, errOut io.Writer) (*callFlags, error) {
	f := &callFlags{}
	set := flag.NewFlagSet("sluice call", flag.ContinueOnError)
	set.SetOutput(errOut)
	set.Usage = func() {
		fmt.Fprint(errOut, callUsage)
		set.PrintDefaults()
	}
	set.StringVar(&f.method, "X", "", "`method`; GET, or POST with -d")
	set.Var(&f.headers, "H", "`Name: value` of a header to the origin; may be repeated")
	set.StringVar(&f.data, "d", "", "request `body`; @file reads a file, @- standard input")
	set.BoolVar(&f.verbose, "v", false, "say on standard error what happens at each step")
	set.BoolVar(&f.include, "i", false, "print status and headers in front of the body")
	set.StringVar(&f.host, "host", "", "`host` of DOMAIN_MAP to ask for, if it is not the URL's")
	set.BoolVar(&f.mte, "mte", false, "encode as MTE instead of MKE")
	set.DurationVar(&f.timeout, "timeout", 0, "give up after this `time`; 0 waits as long as it takes")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() != 1 {
		set.Usage()
		return nil, errors.New("want one URL")
	}
	u, err := url.Parse(set.Arg(0))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no http or https URL", set.Arg(0))
	}
	f.target = u
	set.Visit(func(given *flag.Flag) { f.hasData = f.hasData || given.Name == "d" })
	if f.method == "" {
		f.method = "GET"
		if f.hasData {
			f.method = "POST"
		}
	}
	return f, nil
}

// body opens the request's body and tells its length, 0 if that is not known.
func (f *callFlags) body() (r io.ReadCloser, length int64, err error) {
	switch name, isFile := strings.CutPrefix(f.data, "@"); {
	case f.data == "":
		return nil, 0, nil
	case !isFile:
		return io.NopCloser(strings.NewReader(f.data)), int64(len(f.data)), nil
	case name == "-":
		return os.Stdin, 0, nil
	default:
		file, err := os.Open(name)
		if err != nil {
			return nil, 0, err
		}
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			length = info.Size()
		}
		return file, length, nil
	}
}

// Call is `sluice call`, an encrypted curl. It returns the exit code: 0 for an
// answer below 400, 22 for another, 1 if there was none.
func Call(args []string, out, errOut io.Writer) int {
	f, err := parseCall(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(errOut, "sluice call:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	status, err := f.run(ctx, out, errOut)
	switch {
	case err != nil:
		fmt.Fprintln(errOut, "sluice call:", err)
		return 1
	case status >= 400:
		return 22
	}
	return 0
}

func (f *callFlags) run(ctx context.Context, out, errOut io.Writer) (status int, err error) {
	o := client.Options{
		URL: (&url.URL{Scheme: f.target.Scheme, Host: f.target.Host}).String(), Host: f.host,
		MTE: f.mte, Agent: "sluice/" + Version, MaxPairs: 1, Batch: 1,
	}
	if f.verbose {
		start := time.Now()
		o.Trace = func(line string) {
			fmt.Fprintf(errOut, "%6d ms  %s\n", time.Since(start).Milliseconds(), line)
		}
	}
	c, err := client.New(o)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	body, length, err := f.body()
	if err != nil {
		return 0, err
	}
	req := &client.Request{
		Head:   client.Head{Method: f.method, Path: f.target.RequestURI(), Header: f.headers},
		Length: length,
	}
	if body != nil {
		defer body.Close()
		req.Body = body
	}
	res, err := c.Do(ctx, req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if f.include {
		fmt.Fprintf(out, "%d\n", res.Status)
		for _, h := range res.Header {
			fmt.Fprintf(out, "%s: %s\n", h.Name, h.Value)
		}
		fmt.Fprintln(out)
	}
	if _, err := io.Copy(out, res.Body); err != nil {
		return res.Status, err
	}
	return res.Status, nil
}
