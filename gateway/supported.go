package gateway

import (
	"errors"
	"fmt"

	"sluice/gateway/config"
)

// supported refuses settings that are legal and that this version does not act
// on: an operator who asks for TLS must not get plain text.
func supported(cfg *config.Config) error {
	var errs []error
	refuse := func(on bool, setting, why string) {
		if on {
			errs = append(errs, fmt.Errorf("%s: not in this version: %s", setting, why))
		}
	}
	refuse(cfg.Redis.On(), "REDIS_URL", "everything is kept on one node; unset it and run one replica per name")
	refuse(cfg.Relay.TLS.On(), "PASEO_RELAY_TLS_CERT_FILE", "terminate TLS in front of the listener")
	refuse(cfg.MTE.TLS.On(), "TLS_CERT_FILE", "terminate TLS in front of the listener")
	refuse(cfg.Edge.ProxyProtocol, "PROXY_PROTOCOL", "the listener takes no PROXY header")
	refuse(cfg.Source.ControlPlaneURL != "", "CONTROL_PLANE_URL", "use the environment or CONFIG_FILE")
	return errors.Join(errs...)
}
