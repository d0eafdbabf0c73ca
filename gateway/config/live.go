package config

import "reflect"

// Diff names the settings whose values differ between c and a newer version:
// those that can change while running, and those that need a restart.
func (c *Config) Diff(next *Config) (live, restart []string) {
	for s := range settings {
		was := reflect.ValueOf(s.field(c)).Elem().Interface()
		is := reflect.ValueOf(s.field(next)).Elem().Interface()
		switch {
		case reflect.DeepEqual(was, is):
		case s.Live:
			live = append(live, s.Name)
		default:
			restart = append(restart, s.Name)
		}
	}
	return live, restart
}
