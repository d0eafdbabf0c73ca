package main

// series are the results of one server, by round.
type series struct {
	target  target
	results []result
}

// alternate measures the servers in turn, round after round, so that each
// figure has a neighbour in time to be divided by. Every second round runs
// backwards, because a machine that slows down would favour whoever is first;
// peers run behind, in the first rounds only.
func (l *lab) alternate(r *report, scenario, what string, servers []*server, measure func(*server) (result, error)) ([]series, error) {
	all := make([]series, len(servers))
	for i, s := range servers {
		all[i].target = targetByName(s.name)
	}
	for round := range l.plan.rounds {
		for _, i := range order(all, round, l.plan.peerRounds) {
			got, err := measure(servers[i])
			if err != nil {
				return nil, err
			}
			all[i].results = append(all[i].results, got)
			r.raw(scenario, "%s, round %d, %s: %s", what, round+1, servers[i].name, got.line)
		}
	}
	return all, nil
}

// order of the indexes of one round.
func order(all []series, round, peerRounds int) []int {
	var own, peers []int
	for i, s := range all {
		switch {
		case !s.target.isPeer():
			own = append(own, i)
		case round < peerRounds:
			peers = append(peers, i)
		}
	}
	if round%2 == 1 {
		for i, j := 0, len(own)-1; i < j; i, j = i+1, j-1 {
			own[i], own[j] = own[j], own[i]
		}
	}
	return append(own, peers...)
}

// values of one field, by round.
func (s series) values(field string) ([]float64, error) {
	var out []float64
	for _, r := range s.results {
		v, err := r.get(field)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// A figure is one field of one server, over all rounds.
type figure struct {
	name   string
	peer   bool
	median float64
	ratio  float64 // median of the pairwise ratios to the floor, 0 without one
}

// figures condenses a field of all servers.
func figures(all []series, field string) ([]figure, error) {
	var base []float64
	var out []figure
	for _, s := range all {
		if s.target.name != floorName {
			continue
		}
		v, err := s.values(field)
		if err != nil {
			return nil, err
		}
		base = v
	}
	for _, s := range all {
		v, err := s.values(field)
		if err != nil {
			return nil, err
		}
		out = append(out, figure{
			name:   s.target.name,
			peer:   s.target.isPeer(),
			median: median(v),
			ratio:  median(ratios(v, base)),
		})
	}
	return out, nil
}

// find returns the figure of one server and whether it was measured.
func find(list []figure, name string) (figure, bool) {
	for _, f := range list {
		if f.name == name {
			return f, true
		}
	}
	return figure{}, false
}
