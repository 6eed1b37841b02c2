package restart

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCulprit(t *testing.T) {
	entry := func(manager, sub, fields string, minute int) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: sub, FieldsV1: metav1.NewFieldsV1(fields),
			Time: new(metav1.NewTime(start.Add(time.Duration(minute) * time.Minute)))}
	}
	const notes, template, replicas = `{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{"f:x":{}}}}}}`, `{"f:spec":{"f:template":{"f:spec":{}}}}`, `{"f:spec":{"f:replicas":{}}}`
	for name, tt := range map[string]struct {
		all  []metav1.ManagedFieldsEntry
		want string
	}{
		"nothing is said":                                      {nil, ""},
		"only ourselves and the controllers":                   {[]metav1.ManagedFieldsEntry{entry(fieldManager, "", notes, 9), entry("kube-controller-manager", "status", notes, 9)}, ""},
		"the newest of the template, whoever owns annotations": {[]metav1.ManagedFieldsEntry{entry("flux", "", notes, 1), entry("helm", "", template, 5), entry("hpa", "", replicas, 9)}, "helm"},
		"what was there before anybody applied is nobody":      {[]metav1.ManagedFieldsEntry{entry("before-first-apply", "", notes, 9), entry("helm", "", template, 5)}, "helm"},
		"the newest of the template":                           {[]metav1.ManagedFieldsEntry{entry("helm", "", template, 1), entry("argocd-controller", "", template, 5)}, "argocd-controller"},
		"any of the spec, if nothing else":                     {[]metav1.ManagedFieldsEntry{entry("hpa", "", replicas, 1), entry("labels", "", `{"f:metadata":{}}`, 9)}, "hpa"},
		"fields that are no JSON":                              {[]metav1.ManagedFieldsEntry{entry("odd", "", `{"f:spec"`, 1)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if m := culprit(tt.all); m != nil {
				got = m.Manager
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// FuzzOwns feeds sets of fields as an API server might state them.
func FuzzOwns(f *testing.F) {
	for _, s := range []string{"", "{}", `{"f:spec":{"f:template":{}}}`, `{"f:spec":null}`, `[1]`, `{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{"f:a":{}}}}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, fields []byte) {
		deep := owns(fields, []string{"f:spec", "f:template", "f:metadata"})
		if deep && !owns(fields, []string{"f:spec", "f:template"}) {
			t.Error("owns what is below and not what is above")
		}
		if deep && !json.Valid(fields) {
			t.Error("no JSON")
		}
	})
}

// FuzzLedger feeds the details of a damaged or newer journal.
func FuzzLedger(f *testing.F) {
	f.Add([]byte(`{"do":"evict","owner":"shop/ReplicaSet/web","object":"web-1","uid":"u","want":2}`), []byte(`{"generation":3}`))
	f.Add([]byte(`{"owner":"shop/Deployment/cart","attempt":1,"stamp":"2026-11-30T10:00:00Z"}`), []byte(`null`))
	f.Add([]byte(`{"do":"surge","owner":"x","from":-1}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, detail, outcome []byte) {
		l := readLedger(nil, nil)
		l.begun(1, detail)
		l.came(1, "accepted", outcome)
		l.came(2, "found", outcome)
		for owner := range l.unfinished() {
			if owner == "" {
				t.Error("an owner without a name")
			}
			itemNamed(owner, "")
		}
		for _, e := range l.owed() {
			if e.byHand() == "" {
				t.Error("no command")
			}
		}
	})
}
