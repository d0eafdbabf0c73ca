package config

import (
	"maps"
	"reflect"
	"slices"
)

// MaxDocument bounds a settings file and an answer of the control plane, in bytes.
const MaxDocument = 1 << 20

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

// Changes names the hosts that a newer map adds, removes and changes, each list sorted. What changed
// within a domain may be a secret and is not told.
func (d Domains) Changes(next Domains) (added, removed, changed []string) {
	for _, host := range slices.Sorted(maps.Keys(next)) {
		switch was := d[host]; {
		case was == nil:
			added = append(added, host)
		case !reflect.DeepEqual(was, next[host]):
			changed = append(changed, host)
		}
	}
	for _, host := range slices.Sorted(maps.Keys(d)) {
		if next[host] == nil {
			removed = append(removed, host)
		}
	}
	return added, removed, changed
}
