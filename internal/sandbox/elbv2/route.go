package elbv2

import (
	"net"
	"net/http"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Route answers the actions that a listener takes for a request: those of the first
// rule by priority all of whose conditions match, or the default actions. False
// when there is no such listener.
func (s *Service) Route(listenerARN string, r *http.Request) ([]Action, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.listeners[listenerARN]
	if l == nil {
		return nil, false
	}
	for _, rule := range l.rules {
		if !slices.ContainsFunc(rule.Conditions, func(c Condition) bool { return !c.matches(r) }) {
			return slices.Clone(rule.Actions), true
		}
	}
	return slices.Clone(l.DefaultActions), true
}

func (c Condition) matches(r *http.Request) bool {
	switch c.Field {
	case "host-header":
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		return c.any(strings.ToLower(host), true)
	case "path-pattern":
		return c.any(r.URL.Path, false)
	case "http-header":
		return slices.ContainsFunc(r.Header.Values(c.HeaderName), func(v string) bool { return c.any(strings.ToLower(v), true) })
	case "http-request-method":
		return slices.Contains(c.Values, r.Method)
	case "source-ip":
		return c.source(r.RemoteAddr)
	case "query-string":
		return slices.ContainsFunc(c.Query, func(q QueryPair) bool { return q.matches(r) })
	}
	return false
}

func (c Condition) any(v string, fold bool) bool {
	for _, pattern := range c.Values {
		if fold {
			pattern = strings.ToLower(pattern)
		}
		if glob(pattern, v) {
			return true
		}
	}
	return slices.ContainsFunc(c.Regex, func(expr string) bool {
		re, err := regexp.Compile(expr)
		return err == nil && re.MatchString(v)
	})
}

// glob matches * and ? against any characters, slashes included.
func glob(pattern, v string) bool {
	// path.Match stops at slashes, so there must be none.
	swap := strings.NewReplacer("/", "\x00", "[", "\\[", "\\", "\\\\")
	ok, err := path.Match(swap.Replace(pattern), strings.ReplaceAll(v, "/", "\x00"))
	return err == nil && ok
}

func (c Condition) source(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(c.Values, func(v string) bool {
		prefix, err := netip.ParsePrefix(v)
		return err == nil && prefix.Contains(at.Addr().Unmap())
	})
}

func (q QueryPair) matches(r *http.Request) bool {
	for name, values := range r.URL.Query() {
		if q.Key != "" && !glob(strings.ToLower(q.Key), strings.ToLower(name)) {
			continue
		}
		if slices.ContainsFunc(values, func(v string) bool { return glob(strings.ToLower(q.Value), strings.ToLower(v)) }) {
			return true
		}
	}
	return false
}
