package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// call makes a request of an administrator to a cluster's API server, past the log and
// the faults, and reads the answer into out unless that is nil.
func (c *cluster) call(ctx context.Context, method, path, media, body string, out any) error {
	r, err := http.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", media)
	r.Header.Set("Accept", "application/json")
	a := &recorded{header: http.Header{}}
	c.kube.ServeHTTP(a, r)
	if a.code/100 != 2 {
		return fmt.Errorf("%s %s of cluster %s: the API server answers %d %s", method, path, c.name, a.code, a.body.Bytes())
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(a.body.Bytes(), out)
}

// recorded keeps an answer.
type recorded struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *recorded) Header() http.Header { return a.header }

func (a *recorded) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
}

func (a *recorded) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// Media types of requests.
const (
	mediaJSON  = "application/json"
	mediaMerge = "application/merge-patch+json"
	mediaApply = "application/apply-patch+yaml"
)

// metadata is what is read of objects here.
type metadata struct {
	Metadata struct {
		UID types.UID `json:"uid"`
	} `json:"metadata"`
}

// seedCluster makes what runs in a cluster.
func (s *Sandbox) seedCluster(ctx context.Context, c *cluster) error {
	def := s.scenario.Side(c.side)
	for _, g := range s.eks.Nodegroups(c.name) {
		for range g.Desired {
			if err := c.addNode(s.scenario, g); err != nil {
				return fmt.Errorf("seed node group %s: %w", g.Name, err)
			}
		}
	}
	nodes := map[string]types.UID{}
	for _, o := range def.objects() {
		if err := adopt(ctx, c, o, nodes); err != nil {
			return err
		}
		applied, err := def.GitOps.apply(ctx, c, o)
		if !applied && err == nil {
			err = c.kube.Create(o)
		}
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
	}
	return nil
}

// afterwards does what can be done only once everything stands: it pauses what is to be
// paused, makes the Jobs that CronJobs have run, and starts GitOps.
func (s *Sandbox) afterwards(ctx context.Context, c *cluster) error {
	def := s.scenario.Side(c.side)
	for _, w := range def.awake() {
		path := "/" + w.Namespace + "/"
		switch {
		case w.Paused:
			path = "/apis/apps/v1/namespaces" + path + "deployments/" + w.Name
			if err := c.call(ctx, http.MethodPatch, path, mediaMerge, `{"spec":{"paused":true}}`, nil); err != nil {
				return fmt.Errorf("pause %s/%s: %w", w.Namespace, w.Name, err)
			}
		case w.Ran+w.Running > 0:
			if err := s.ran(ctx, c, w); err != nil {
				return fmt.Errorf("the Jobs of CronJob %s/%s: %w", w.Namespace, w.Name, err)
			}
		}
	}
	if def.GitOps != nil {
		c.gitops(*def.GitOps)
	}
	return c.kube.Settle(ctx)
}

// apply makes a Deployment as a GitOps controller does, so that managedFields say whose
// it is; false for what it does not keep.
func (g *GitOps) apply(ctx context.Context, c *cluster, o runtime.Object) (bool, error) {
	d, ok := o.(*appsv1.Deployment)
	if g == nil || !ok || !slices.Contains(g.Owners, d.Namespace+"/Deployment/"+d.Name) {
		return false, nil
	}
	body, err := json.Marshal(d)
	if err != nil {
		return false, err
	}
	path := "/apis/apps/v1/namespaces/" + d.Namespace + "/deployments/" + d.Name + "?force=true&fieldManager=" + url.QueryEscape(g.Manager)
	return true, c.call(ctx, http.MethodPatch, path, mediaApply, string(body), nil)
}

// ran makes the Jobs of a CronJob, one for each of the last minutes: first those that still
// run, then the finished ones.
func (s *Sandbox) ran(ctx context.Context, c *cluster, w Workload) error {
	path := "/apis/batch/v1/namespaces/" + w.Namespace + "/"
	var cron metadata
	if err := c.call(ctx, http.MethodGet, path+"cronjobs/"+w.Name, mediaJSON, "", &cron); err != nil {
		return err
	}
	for n := range w.Running + w.Ran {
		runs := w.Runs
		if n >= w.Running {
			runs = 0
		}
		j := w.jobOf(cron.Metadata.UID, s.born.Add(-time.Duration(n+1)*time.Minute), runs)
		body, err := json.Marshal(j)
		if err != nil {
			return err
		}
		if err := c.call(ctx, http.MethodPost, path+"jobs", mediaJSON, string(body), nil); err != nil {
			return err
		}
	}
	return nil
}

// gitops takes the annotation of a rollout restart out of the owners' templates again
// whenever something has changed.
func (c *cluster) gitops(g GitOps) {
	const key = "kubectl.kubernetes.io/restartedAt"
	revert := func(owner string) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		ns, name, _ := strings.Cut(owner, "/Deployment/")
		path := "/apis/apps/v1/namespaces/" + ns + "/deployments/" + name
		var d struct {
			Spec struct {
				Template struct {
					Metadata struct {
						Annotations map[string]string `json:"annotations"`
					} `json:"metadata"`
				} `json:"template"`
			} `json:"spec"`
		}
		if c.call(ctx, http.MethodGet, path, mediaJSON, "", &d) != nil || d.Spec.Template.Metadata.Annotations[key] == "" {
			return // nothing to revert; an API server that is away is looked at after the next change
		}
		body := `{"spec":{"template":{"metadata":{"annotations":{"` + key + `":null}}}}}`
		_ = c.call(ctx, http.MethodPatch, path+"?fieldManager="+url.QueryEscape(g.Manager), mediaMerge, body, nil) // likewise
	}
	c.kube.OnChange(func() {
		for _, o := range g.Owners {
			revert(o)
		}
	})
}
