package open

import (
	"encoding/hex"
	"strings"
	"testing"
)

func TestProbe(t *testing.T) {
	v := load(t)
	for _, strength := range []int{512, 768, 1024} {
		p, err := New(strength, MinWindow)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(p.String(), ";probe="+v.Probe) {
			t.Errorf("profile %s, want the probe %s", p, v.Probe)
		}
	}
	var probe struct {
		Entropy, Personalization, Plaintext string
		Nonce, Operations                   int
	}
	readJSON(t, "testdata/probe.json", &probe)
	if probe.Nonce != probeNonce || probe.Personalization != probePerson ||
		string(unhex(t, probe.Plaintext)) != probeMessage || probe.Operations != 2 {
		t.Errorf("the probe is made from other values than %+v", probe)
	}
	for i, b := range unhex(t, probe.Entropy) {
		if int(b) != i {
			t.Errorf("the probe's entropy is %s", probe.Entropy)
			break
		}
	}
}

func TestProfileString(t *testing.T) {
	f := func(strength int, want string) {
		t.Helper()
		p, err := New(strength, MinWindow)
		if err != nil || p.String() != want {
			t.Errorf("%v (%v), want %s", p, err, want)
		}
	}
	const head = "mte/open-1;tok=8;drbg=hkdf-sha256;cipher=aes-256-gcm;hash=sha-256;verifiers=seq;kyber="
	f(512, head+"512;probe=0b4e96cf74cc9645")
	f(768, head+"768;probe=0b4e96cf74cc9645")
	f(1024, head+"1024;probe=0b4e96cf74cc9645")
}

func TestNewFailure(t *testing.T) {
	f := func(strength, window int) {
		t.Helper()
		if p, err := New(strength, window); err == nil {
			t.Errorf("strength %d window %d: %v", strength, window, p)
		}
	}
	f(0, 0)
	f(256, 0)
	f(1023, -63)
	f(1024, MinWindow-1)
	f(1024, MaxWindow+1)
}

func TestMatch(t *testing.T) {
	p := profileFor(t, MinWindow)
	rest := strings.TrimSuffix(p.String(), "0b4e96cf74cc9645")
	f := func(name, peer string, agree, same bool) {
		t.Helper()
		gotAgree, gotSame := p.Match(peer)
		if gotAgree != agree || agree && gotSame != same {
			t.Errorf("%s: agree %v, same probe %v", name, gotAgree, gotSame)
		}
	}
	f("ourselves", p.String(), true, true)
	f("another probe", rest+"0000000000000000", true, false)
	f("a probe of another length", rest+"00", true, false)
	f("an empty probe", rest, true, false)
	f("no probe", strings.TrimSuffix(rest, ";probe="), true, false)
	f("another strength", strings.Replace(p.String(), "kyber=1024", "kyber=512", 1), false, false)
	f("another cipher", strings.Replace(p.String(), "aes-256-gcm", "aes-128-gcm", 1), false, false)
	f("a licensed library", "mte/licensed-4;kyber=1024;probe=0b4e96cf74cc9645", false, false)
	f("a member after the probe", p.String()+";x=1", false, false)
	f("two probes", p.String()+";probe=00", false, false)
	f("the probe in front", "probe=0b4e96cf74cc9645;"+strings.TrimSuffix(rest, ";probe="), false, false)
	f("nothing", "", false, false)
	f("x", "x", false, false)
}

func TestSizes(t *testing.T) {
	p := profileFor(t, MinWindow)
	f := func(x Type, n, want int) {
		t.Helper()
		if got := p.EncodedBytes(x, n); got != want {
			t.Errorf("%v of %d bytes: %d, want %d", x, n, got, want)
		}
	}
	f(MKE, 0, 24)
	f(MKE, 65512, 65536)
	f(MKE, -1, -1)
	f(MTE, 0, -1)
	f(MTE, 1, 12)
	f(MTE, 8191, 65532)
	f(Type(2), 5, -1)
	g := func(x Type, n, want int) {
		t.Helper()
		if got := p.PlaintextBytes(x, n); got != want {
			t.Errorf("%v in %d bytes: %d, want %d", x, n, got, want)
		}
	}
	g(MKE, 23, -1)
	g(MKE, 24, 0)
	g(MKE, 65536, 65512)
	g(MTE, 11, -1)
	g(MTE, 12, 1)
	g(MTE, 19, 1)
	g(MTE, 20, 2)
	g(MTE, 65536, 8191)
	g(Type(9), 100, -1)
	if v := load(t); len(v.initial(t, p)) != p.StateBytes() || p.StateBytes() != 49 {
		t.Errorf("state of %d bytes", p.StateBytes())
	}
}

func TestNonceTopBit(t *testing.T) {
	p := profileFor(t, MinWindow)
	mustPanic(t, "a nonce with its top bit set was taken", func() {
		p.AppendInitialState(nil, new([32]byte), 1<<63, nil)
	})
	if s := p.AppendInitialState(nil, new([32]byte), 1<<63-1, nil); len(s) != 49 {
		t.Errorf("state %s", hex.EncodeToString(s))
	}
}
