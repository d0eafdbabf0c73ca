package gateway

import "sluice/gateway/config"

// unsupported names settings that are legal and that this version does not act
// on, a line each: an operator who asks for TLS must not get plain text.
func unsupported(cfg *config.Config) (lines []string) {
	refuse := func(on bool, setting, why string) {
		if on {
			lines = append(lines, setting+": not in this version: "+why)
		}
	}
	refuse(cfg.Relay.TLS.On(), "PASEO_RELAY_TLS_CERT_FILE", "terminate TLS in front of the listener")
	refuse(cfg.MTE.TLS.On(), "TLS_CERT_FILE", "terminate TLS in front of the listener")
	refuse(cfg.Edge.ProxyProtocol, "PROXY_PROTOCOL", "the listener takes no PROXY header")
	refuse(cfg.Source.ControlPlaneURL != "", "CONTROL_PLANE_URL", "use the environment or CONFIG_FILE")
	return lines
}
