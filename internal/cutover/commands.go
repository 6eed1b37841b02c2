package cutover

import (
	"encoding/json"
	"fmt"
	"strings"

	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
)

// commands give the batch as `aws route53` takes it. What is deleted are the sets as
// they are now; when they could not be read, the sets are upserted instead, which
// overwrites whatever is there.
func (m *zoneMover) commands(now *view, c *change) []string {
	batch := c.batch()
	batch.Changes = nil
	create := r53types.ChangeActionUpsert
	if now != nil {
		create = r53types.ChangeActionCreate
		for i := range c.NewSets {
			if have, ok := m.find(now, c.NewSets[i]); ok {
				batch.Changes = append(batch.Changes, r53types.Change{Action: r53types.ChangeActionDelete, ResourceRecordSet: &have})
			}
		}
	}
	for i := range c.NewSets {
		batch.Changes = append(batch.Changes, r53types.Change{Action: create, ResourceRecordSet: &c.NewSets[i]})
	}
	return []string{fmt.Sprintf("aws route53 change-resource-record-sets --hosted-zone-id %s --change-batch %s", m.id, shellJSON(batch))}
}

// commands give the whole action list as `aws elbv2` takes it.
func (b *balancer) commands(_ *view, c *change) []string {
	region := ""
	if f := strings.SplitN(b.lb, ":", 5); len(f) == 5 && f[3] != "" {
		region = " --region " + f[3]
	}
	actions := shellJSON(sendable(c.NewActions))
	if b.rule != "" {
		return []string{fmt.Sprintf("aws elbv2 modify-rule%s --rule-arn %s --actions %s", region, b.rule, actions)}
	}
	return []string{fmt.Sprintf("aws elbv2 modify-listener%s --listener-arn %s --default-actions %s", region, b.listener, actions)}
}

// shellJSON writes a value of the SDK as JSON that the AWS CLI takes as an argument:
// members that are not set are left out, and the whole is quoted for a POSIX shell.
func shellJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		// The SDK's values hold strings, numbers, booleans and lists alone.
		panic(fmt.Sprintf("marshal for a command line: %v", err))
	}
	var generic any
	if err := json.Unmarshal(raw, &generic); err != nil {
		panic(fmt.Sprintf("read back own JSON: %v", err))
	}
	out, err := json.Marshal(prune(generic))
	if err != nil {
		panic(fmt.Sprintf("marshal for a command line: %v", err))
	}
	return "'" + strings.ReplaceAll(string(out), "'", `'\''`) + "'"
}

// prune drops what is null, an empty string or an empty list.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			p := prune(e)
			if p == nil || p == "" {
				delete(v, k)
				continue
			}
			if list, ok := p.([]any); ok && len(list) == 0 {
				delete(v, k)
				continue
			}
			v[k] = p
		}
		return v
	case []any:
		for i := range v {
			v[i] = prune(v[i])
		}
		return v
	}
	return v
}
