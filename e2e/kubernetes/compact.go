package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// Compact makes every resource version and continue token up to now expire: etcd drops
// the history, and the API server, whose watch cache has a copy, is killed and started
// again.
func (c *ControlPlane) Compact(ctx context.Context) error {
	var now struct {
		Header struct{ Revision string }
	}
	// Any key will do: the revision of the whole store is in each answer's header.
	if err := c.etcdCall(ctx, "range", map[string]any{"key": []byte{0}}, &now); err != nil {
		return err
	}
	revision, err := strconv.ParseInt(now.Header.Revision, 10, 64)
	if err != nil {
		return fmt.Errorf("read etcd's revision: %w", err)
	}
	if err := c.etcdCall(ctx, "compaction", map[string]any{"revision": revision, "physical": true}, &now); err != nil {
		return err
	}
	return errors.Join(c.KillAPIServer(), c.StartAPIServer(ctx))
}

// etcdCall speaks to etcd's gateway (https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/).
func (c *ControlPlane) etcdCall(ctx context.Context, call string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL+"/v3/kv/"+call, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask etcd for a %s: %w", call, err)
	}
	defer res.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("ask etcd for a %s: status %d: %s: %w", call, res.StatusCode, text, err)
	}
	return json.Unmarshal(text, out)
}
