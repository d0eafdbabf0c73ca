package gateway

import "sluice/gateway/config"

// unsupported names settings that are legal and that this version does not act
// on, a line each: an operator who asks for shared state must not get one node's.
func unsupported(cfg *config.Config) (lines []string) {
	refuse := func(on bool, setting, why string) {
		if on {
			lines = append(lines, setting+": not in this version: "+why)
		}
	}
	refuse(cfg.Source.ControlPlaneURL != "", "CONTROL_PLANE_URL", "use the environment or CONFIG_FILE")
	return lines
}
