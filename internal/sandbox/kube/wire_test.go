package kube_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/eksbg/eksbg/internal/sandbox/kube"
	"github.com/eksbg/eksbg/internal/sandbox/wire"
)

func TestClassify(t *testing.T) {
	r := start(t, nil)
	for _, c := range []struct {
		method, url string
		want        wire.Call
	}{
		{"GET", "/api/v1/pods", wire.Call{Name: "k8s:list pods"}},
		{"GET", "/api/v1/namespaces/shop/pods?limit=500", wire.Call{Name: "k8s:list pods", Object: "shop"}},
		{"GET", "/api/v1/pods?watch=true", wire.Call{Name: "k8s:watch pods"}},
		{"GET", "/api/v1/namespaces/shop/pods/cart-1", wire.Call{Name: "k8s:get pods", Object: "shop/cart-1"}},
		{"GET", "/api/v1/nodes/n1", wire.Call{Name: "k8s:get nodes", Object: "n1"}},
		{"GET", "/api/v1/namespaces/shop", wire.Call{Name: "k8s:get namespaces", Object: "shop"}},
		{"DELETE", "/api/v1/namespaces/shop/pods/cart-1", wire.Call{Name: "k8s:delete pods", Object: "shop/cart-1", Changing: true}},
		{"DELETE", "/api/v1/namespaces/shop/pods", wire.Call{Name: "k8s:deletecollection pods", Object: "shop", Changing: true}},
		{"PATCH", "/apis/apps/v1/namespaces/shop/deployments/cart", wire.Call{Name: "k8s:patch deployments", Object: "shop/cart", Changing: true}},
		{"PATCH", "/apis/apps/v1/namespaces/shop/deployments/cart?dryRun=All", wire.Call{Name: "k8s:patch deployments", Object: "shop/cart"}},
		{"PUT", "/apis/apps/v1/namespaces/shop/deployments/cart/scale", wire.Call{Name: "k8s:update deployments/scale", Object: "shop/cart", Changing: true}},
		{"POST", "/api/v1/namespaces/shop/pods/cart-1/eviction", wire.Call{Name: "k8s:create pods/eviction", Object: "shop/cart-1", Changing: true}},
		{"GET", "/version", wire.Call{Name: "k8s:get /version"}},
		{"GET", "/apis/apps/v1", wire.Call{Name: "k8s:get /apis/apps/v1"}},
	} {
		got := r.c.Classify(httptest.NewRequest(c.method, c.url, nil), nil)
		if got != c.want {
			t.Errorf("%s %s is %+v, want %+v", c.method, c.url, got, c.want)
		}
	}
}

// TestFaults puts a fault in front of the cluster and reads it with client-go.
func TestFaults(t *testing.T) {
	r := start(t, nil)
	for _, c := range []struct {
		fault wire.Fault
		is    func(error) bool
		text  string
	}{
		{wire.Fault{Error: "Forbidden", Message: "no, thank you"}, apierrors.IsForbidden, "no, thank you"},
		{wire.Fault{Error: "ServiceUnavailable"}, apierrors.IsServiceUnavailable, "currently unable"},
		{wire.Fault{Status: 500, Message: "etcdserver: leader changed"}, apierrors.IsInternalError, "leader changed"},
		{wire.Fault{Error: "Unauthorized"}, apierrors.IsUnauthorized, "Unauthorized"},
		{wire.Fault{Status: 409}, apierrors.IsConflict, ""},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.c.WriteFault(w, q, c.fault) }))
		for _, media := range []string{mimeJSON, mimeProto} {
			rc, err := rest.RESTClientFor(&rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{
				ContentType: media, GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: codecs},
			})
			if err != nil {
				t.Fatal(err)
			}
			err = rc.Get().Resource("pods").MaxRetries(0).Do(deadline(t)).Error()
			if err == nil || !c.is(err) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("fault %+v in %s reads as %v", c.fault, media, err)
			}
		}
		s.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}
}

// raw makes a request without client-go.
func (r *rig) raw(method, path, accept string, body []byte) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, bytes.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	r.c.ServeHTTP(w, req)
	return w
}

// TestTables reads the columns that kubectl shows.
func TestTables(t *testing.T) {
	r := start(t, nil)
	r.seed(deployment("web", 2), statefulSet("db", 1), budget("b", "web", minAvailable("1")),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}})
	r.settle()
	const as = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	for _, c := range []struct {
		path string
		cols string
		row  string
	}{
		{"/apis/apps/v1/deployments", "Name,Ready,Up-to-date,Available,Age,Containers*,Images*,Selector*", "web 2/2 2 2"},
		{"/apis/apps/v1/statefulsets", "Name,Ready,Age,Containers*,Images*", "db 1/1"},
		{"/api/v1/namespaces/default/pods/db-0", "Name,Ready,Status,Restarts,Age,IP*,Node*,Nominated Node*,Readiness Gates*", "db-0 1/1 Running 0"},
		{"/api/v1/nodes", "Name,Status,Roles,Age,Version,Internal-IP*,External-IP*,OS-Image*,Kernel-Version*,Container-Runtime*", "fargate-ip-"},
		{"/apis/policy/v1/poddisruptionbudgets", "Name,Min Available,Max Unavailable,Allowed Disruptions,Age", "b 1 N/A 1"},
		{"/api/v1/services", "Name,Type,Cluster-IP,External-IP,Port(s),Age,Selector*", "kubernetes ClusterIP 172.20.0.1 <none> 443/TCP"},
	} {
		w := r.raw("GET", c.path, as, nil)
		var table metav1.Table
		if err := json.Unmarshal(w.Body.Bytes(), &table); err != nil || table.Kind != "Table" || len(table.Rows) == 0 {
			t.Errorf("%s: %d %s (%v)", c.path, w.Code, w.Body, err)
			continue
		}
		var cols, cells []string
		for _, d := range table.ColumnDefinitions {
			n := d.Name
			if d.Priority > 0 {
				n += "*"
			}
			cols = append(cols, n)
		}
		for _, cell := range table.Rows[0].Cells {
			cells = append(cells, fmt.Sprint(cell))
		}
		if got := strings.Join(cols, ","); got != c.cols {
			t.Errorf("%s: columns %s, want %s", c.path, got, c.cols)
		}
		if got := strings.Join(cells, " "); !strings.HasPrefix(got, c.row) {
			t.Errorf("%s: row %q, want it to begin %q", c.path, got, c.row)
		}
		if len(cells) != len(cols) {
			t.Errorf("%s: %d cells in %d columns", c.path, len(cells), len(cols))
		}
		if !bytes.Contains(table.Rows[0].Object.Raw, []byte("PartialObjectMetadata")) {
			t.Errorf("%s: the row carries %s", c.path, table.Rows[0].Object.Raw)
		}
	}
}

// TestDiscovery checks that every list of resources is there and names what is served.
func TestDiscovery(t *testing.T) {
	r := start(t, nil)
	groups, lists, err := r.client(mimeProto).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var names, subs []string
	for _, g := range groups {
		names = append(names, g.Name+"/"+g.PreferredVersion.Version)
	}
	for _, l := range lists {
		for _, a := range l.APIResources {
			if strings.Contains(a.Name, "/") && !strings.HasSuffix(a.Name, "/status") {
				subs = append(subs, l.GroupVersion+" "+a.Name+" "+a.Kind)
				continue
			}
			if strings.Contains(a.Name, "/") || slices.Equal(a.Verbs, metav1.Verbs{"create"}) {
				continue
			}
			prefix := "/apis/"
			if l.GroupVersion == "v1" {
				prefix = "/api/"
			}
			if w := r.raw("GET", prefix+l.GroupVersion+"/"+a.Name, mimeJSON, nil); w.Code != 200 {
				t.Errorf("listing %s %s: %d", l.GroupVersion, a.Name, w.Code)
			}
		}
	}
	if want := []string{"/v1", "admissionregistration.k8s.io/v1", "apps/v1", "batch/v1", "autoscaling/v2", "policy/v1", "scheduling.k8s.io/v1",
		"coordination.k8s.io/v1", "argoproj.io/v1alpha1", "apps.kruise.io/v1alpha1", "authentication.k8s.io/v1", "authorization.k8s.io/v1"}; !slices.Equal(names, want) {
		t.Errorf("groups %v, want %v", names, want)
	}
	if want := "[v1 pods/eviction Eviction v1 pods/portforward PodPortForwardOptions v1 replicationcontrollers/scale Scale apps/v1 deployments/scale Scale apps/v1 replicasets/scale Scale " +
		"apps/v1 statefulsets/scale Scale argoproj.io/v1alpha1 rollouts/scale Scale apps.kruise.io/v1alpha1 clonesets/scale Scale]"; fmt.Sprint(subs) != want {
		t.Errorf("subresources %v, want %s", subs, want)
	}
}

// TestOpenAPI checks what kubectl looks for: that PATCH knows fieldValidation (v3), and
// that there is a v2 document for older ones.
func TestOpenAPI(t *testing.T) {
	r := start(t, nil)
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(r.raw("GET", "/openapi/v3", mimeJSON, nil).Body.Bytes(), &index); err != nil || len(index.Paths) != 12 {
		t.Fatalf("index %+v (%v)", index, err)
	}
	w := r.raw("GET", index.Paths["apis/apps/v1"].URL, mimeJSON, nil)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"fieldValidation"`) || !strings.Contains(w.Body.String(), "/apis/apps/v1/namespaces/{namespace}/deployments/{name}") {
		t.Errorf("document of apps/v1: %d %s", w.Code, w.Body)
	}
	const proto = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	if w := r.raw("GET", "/openapi/v2", proto, nil); w.Code != 200 || w.Body.Len() != 0 || !strings.Contains(w.Header().Get("Content-Type"), "spec.v2.v1.0+protobuf") {
		t.Errorf("v2 in protobuf: %d %q %v", w.Code, w.Body, w.Header())
	}
}

// TestOddRequests checks the answers to what is not there or not to be had.
func TestOddRequests(t *testing.T) {
	r := start(t, nil)
	r.seed(pod("web"))
	for _, c := range []struct {
		method, path, accept string
		code                 int
		reason               metav1.StatusReason
	}{
		{"GET", "/api/v1/gadgets", mimeJSON, 404, metav1.StatusReasonNotFound},
		{"GET", "/api/v1/namespaces/default/pods/web/log", mimeJSON, 404, metav1.StatusReasonNotFound},
		{"GET", "/api/v1/namespaces/default/pods/none", mimeProto + "," + mimeJSON, 404, ""},
		{"GET", "/apis/apps/v2", mimeJSON, 404, metav1.StatusReasonNotFound},
		{"PUT", "/api/v1/namespaces/default/pods", mimeJSON, 405, metav1.StatusReasonMethodNotAllowed},
		{"DELETE", "/api/v1/namespaces", mimeJSON, 405, metav1.StatusReasonMethodNotAllowed},
		{"GET", "/api/v1/pods", "text/html", 406, metav1.StatusReasonNotAcceptable},
		{"GET", "/api/v1/pods?limit=many", mimeJSON, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?labelSelector=a%3D%3D%3Db", mimeJSON, 400, metav1.StatusReasonBadRequest},
		{"GET", "/api/v1/pods?watch=1&sendInitialEvents=true", mimeJSON, 422, metav1.StatusReasonInvalid},
		{"POST", "/api/v1/namespaces/default/pods", mimeJSON, 400, metav1.StatusReasonBadRequest},
	} {
		w := r.raw(c.method, c.path, c.accept, nil)
		if w.Code != c.code {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, w.Code, c.code, w.Body)
		}
		if c.reason == "" {
			if b := w.Body.Bytes(); !bytes.HasPrefix(b, []byte("k8s\x00")) {
				t.Errorf("%s %s: the error is not protobuf: %q", c.method, c.path, b)
			}
			continue
		}
		var s metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || s.Reason != c.reason || s.Kind != "Status" {
			t.Errorf("%s %s: status %+v (%v), want reason %s", c.method, c.path, s, err, c.reason)
		}
	}
}

// TestMetadataClient lists metadata alone, as client-go's metadata client asks for it.
func TestMetadataClient(t *testing.T) {
	r := start(t, nil)
	r.seed(pod("web"))
	cfg := r.config(mimeJSON)
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer hc.CloseIdleConnections()
	mc, err := metadata.NewForConfigAndClient(cfg, hc)
	if err != nil {
		t.Fatal(err)
	}
	l, err := mc.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace("default").List(deadline(t), metav1.ListOptions{})
	if err != nil || len(l.Items) != 1 || l.Items[0].Labels["app"] != "web" || l.ResourceVersion == "" {
		t.Errorf("metadata %+v (%v)", l, err)
	}
}

// TestYAML reads a manifest in YAML over the wire.
func TestYAML(t *testing.T) {
	r := start(t, func(o *kube.Options) { o.Authenticate = nil })
	body := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n"
	req := httptest.NewRequest("POST", "/api/v1/namespaces/default/configmaps", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/yaml")
	req.Header.Set("Accept", "application/yaml")
	w := httptest.NewRecorder()
	r.c.ServeHTTP(w, req)
	out, _ := io.ReadAll(w.Result().Body)
	if w.Code != 201 || !strings.Contains(string(out), "a: b") {
		t.Errorf("%d %s", w.Code, out)
	}
}
