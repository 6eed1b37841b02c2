package edge

import "sync"

// Failure makes a cluster answer a part of its requests with an error, as an
// application that does not stand the new version would.
type Failure struct {
	// Cluster is the one that answers wrongly.
	Cluster string
	// Status is the HTTP status it answers with; 0 cuts the connection instead.
	Status int
	// Percent is how many requests of a hundred are hit; they are spread evenly, not
	// drawn, so that a test can count them.
	Percent float64
	// Share is the least per cent of the traffic, by any entrance, at which the
	// failure shows; 0 is always. It stands for what breaks only under load.
	Share float64
}

// failures counts requests per cluster and says which of them fail.
type failures struct {
	mu    sync.Mutex
	list  []Failure
	debts []float64
}

func (f *failures) add(v Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, v)
	f.debts = append(f.debts, 0)
}

func (f *failures) clear(cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []Failure
	var debts []float64
	for i, v := range f.list {
		if v.Cluster != cluster {
			list, debts = append(list, v), append(debts, f.debts[i])
		}
	}
	f.list, f.debts = list, debts
}

// next counts one request to the cluster, whose share of the traffic is given, and
// returns the failure that hits it.
func (f *failures) next(cluster string, share float64) (Failure, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var hit Failure
	found := false
	for i, v := range f.list {
		if v.Cluster != cluster || share < v.Share {
			continue
		}
		f.debts[i] += v.Percent / 100
		if f.debts[i] >= 1-1e-9 {
			f.debts[i]--
			hit, found = v, true
		}
	}
	return hit, found
}
