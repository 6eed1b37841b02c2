package cluster

// interned are strings that many objects share, each kept once.
type interned map[string]string

func (i interned) one(s string) string {
	if had, ok := i[s]; ok {
		return had
	}
	i[s] = s
	return s
}

// intern shares what a pod has in common with others.
func (p *Pod) intern(i interned) {
	for _, s := range []*string{&p.Namespace, &p.Phase, &p.Scheduler, &p.Profile, &p.Owner.APIVersion, &p.Owner.Namespace, &p.Owner.Kind, &p.Owner.Name, &p.Owner.UID} {
		*s = i.one(*s)
	}
}

// intern shares what a node has in common with others.
func (n *Node) intern(i interned) {
	for _, s := range []*string{&n.Kubelet, &n.Minor, &n.Compute, &n.Profile, &n.Zone} {
		*s = i.one(*s)
	}
}
