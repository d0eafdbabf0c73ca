package metric

import (
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// A Config counts what came of the live settings' sources (contract, settings). It may be bumped
// from anywhere.
type Config struct {
	Applied       *metrics.Counter
	CacheFailures *metrics.Counter // the last good version could not be kept

	refused  [configRefusals]*metrics.Counter
	failures [pollFailures]*metrics.Counter
}

// A ConfigRefusal is why a new version of the live settings was not applied. Its text is the label
// of sluice_config_refused_total and the value in log lines.
type ConfigRefusal uint8

const (
	// ConfigUnreadable: CONFIG_FILE is gone or its mode changed: a deployment replaces it in two steps.
	ConfigUnreadable ConfigRefusal = iota
	// ConfigForm: no JSON or YAML object, or too long: a template went wrong, or another file is served.
	ConfigForm
	// ConfigSettings: a setting is unknown, or its value is not legal.
	ConfigSettings
	// ConfigRestart: a setting differs that only a restart can change.
	ConfigRestart
	// ConfigUnusable: legal, but this process cannot work with it, such as an upstream it cannot use.
	ConfigUnusable

	configRefusals
)

var configRefusalNames = [configRefusals]string{"unreadable", "form", "settings", "restart", "unusable"}

func (c ConfigRefusal) String() string { return configRefusalNames[c] }

// A PollFailure is why the control plane had no version for us. Its text is the label of
// sluice_config_poll_failures_total and the value in log lines.
type PollFailure uint8

const (
	// PollUnreachable: no connection, or it broke: the network, or the server is down.
	PollUnreachable PollFailure = iota
	// PollTLS: its certificate is not one we trust for that name, or has ended.
	PollTLS
	// PollTimeout: it took longer than we wait: it is overloaded, or trickles.
	PollTimeout
	// PollUnauthorized: 401 or 403: the token is missing, or has ended.
	PollUnauthorized
	// PollRedirect: a redirect, which is not followed: the URL is old, or a portal is in the way.
	PollRedirect
	// PollStatus: any other status.
	PollStatus
	// PollTruncated: less came than was announced, or what came may have been cut.
	PollTruncated
	// PollTooLarge: over 1 MiB, as sent or decompressed.
	PollTooLarge
	// PollEncoding: compressed in a way we did not ask for, or damaged.
	PollEncoding
	// PollToken: CONTROL_PLANE_TOKEN_FILE cannot be read or holds no token; nothing was sent.
	PollToken

	pollFailures
)

var pollFailureNames = [pollFailures]string{"unreachable", "tls", "timeout", "unauthorized", "redirect", "status", "truncated", "too_large", "encoding", "token"}

func (p PollFailure) String() string { return pollFailureNames[p] }

// newConfig adds the families to the process's page.
func newConfig(p *Page, g *ProcessGauges) *Config {
	c := &Config{}
	p.Gauge("sluice_config_version", "Applied versions of the live settings.", func() float64 { return float64(g.ConfigVersion()) })
	c.Applied = p.Counter("sluice_config_applied_total", "New versions of the live settings that were applied.")
	copy(c.refused[:], p.Counters("sluice_config_refused_total", "New versions that were refused, by cause.", labels("cause", configRefusalNames[:])))
	copy(c.failures[:], p.Counters("sluice_config_poll_failures_total", "Polls of the control plane that brought no answer to judge, by cause.", labels("cause", pollFailureNames[:])))
	c.CacheFailures = p.Counter("sluice_config_cache_failures_total", "Good versions that CONTROL_PLANE_CACHE_FILE could not keep.")
	if g.ControlPlaneAge != nil {
		p.Gauge("sluice_config_control_plane_age_seconds", "Since the control plane last answered, or since the start.", func() float64 { return g.ControlPlaneAge().Seconds() })
		p.Gauge("sluice_config_pending", "1 while no version of the control plane is in force, not even a kept one.", flag(g.ConfigPending))
	}
	return c
}

// Refused counts a version that was not applied.
func (c *Config) Refused(why ConfigRefusal) { c.refused[why].Inc() }

// Failed counts a poll that brought nothing.
func (c *Config) Failed(why PollFailure) { c.failures[why].Inc() }

// ConfigGauges are the part of ProcessGauges about settings.
type ConfigGauges struct {
	ConfigVersion func() uint64
	// ControlPlaneAge and ConfigPending are nil without a control plane.
	ControlPlaneAge func() time.Duration
	ConfigPending   func() bool
}
