package cutover

import (
	"context"
	"errors"
	"fmt"

	eksaws "github.com/eksbg/eksbg/internal/aws"
	"github.com/eksbg/eksbg/internal/state"
)

// Check holds the entrances against what must be true before any weight is moved.
// Things that are not there, or not of this pair, are errors (exit 1) that name the
// thing and the cure; everything else is a finding: traffic/owner,
// traffic/external-dns, traffic/series, traffic/sum, traffic/types, traffic/weights
// (a stage that the weights cannot express) and traffic/groups as ERROR,
// traffic/sticky, traffic/health-check and traffic/evaluate-target-health as WARN,
// traffic/ttl as INFO. What may not be read is UNKNOWN. stages are the per cents that
// the run will go through.
func Check(ctx context.Context, traffic []Traffic, stages ...int) ([]state.Finding, error) {
	c := checker{stages: stages, names: map[string]string{}}
	var errs []error
	// The load balancers first: records are held against their names.
	for _, t := range traffic {
		if b, ok := t.(*balancer); ok {
			errs = append(errs, c.balancer(ctx, b))
		}
	}
	for _, t := range traffic {
		switch t := t.(type) {
		case *record:
			errs = append(errs, c.record(ctx, t))
		case *balancer:
		default:
			errs = append(errs, fmt.Errorf("traffic target %s (%T) was not made by Open", t.ID(), t))
		}
	}
	return c.findings, errors.Join(errs...)
}

type checker struct {
	stages []int
	// names maps the DNS name of each listed load balancer to its target id.
	names    map[string]string
	findings []state.Finding
}

func (c *checker) find(check string, severity state.Severity, text, cure string) {
	c.findings = append(c.findings, state.Finding{Check: check, Severity: severity, Text: state.Clean(text), Cure: state.Clean(cure)})
}

// weights checks that a pair has traffic at all and can express every stage, whichever
// side it goes to.
func (c *checker) weights(what string, p pair) {
	if p.sum() == 0 {
		c.find("traffic/sum", state.SeverityError, what+": both weights are 0, so nobody can tell which side is active, and there is nothing to divide",
			"give the active side its weight back")
		return
	}
	for _, percent := range c.stages {
		for _, q := range []pair{p, {origin: p.dest, dest: p.origin, others: p.others, limit: p.limit}} {
			if _, err := q.at(percent); err != nil {
				c.find("traffic/weights", state.SeverityError, fmt.Sprintf("%s: stage %d %%: %v", what, percent, err), "change the weights or cutover.stages")
				break
			}
		}
	}
}

// unread turns an error of a read that a check can do without into an UNKNOWN finding;
// other errors are given back.
func (c *checker) unread(check, what string, err error) error {
	if !eksaws.IsDenied(err) {
		return err
	}
	c.find(check, state.SeverityUnknown, what+" could not be read: "+eksaws.Message(err), "allow the call, or waive this check with a reason")
	return nil
}
