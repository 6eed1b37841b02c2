package wire

import (
	"sync"
	"time"
)

// The access key that the sandbox hands out in its env file.
const (
	AccessKey = "AKIDSANDBOX"
	Secret    = "sandbox/secret/of/no/account+anywhere0000"
	// Account is the account that everything in the sandbox belongs to.
	Account = "111122223333"
)

// Key is one set of credentials.
type Key struct {
	AccessKey, Secret string
	// SessionToken is empty for keys of a user.
	SessionToken string
	// ARN and UserID are what GetCallerIdentity answers for it.
	ARN, UserID string
	// Expires is zero for a key that never does.
	Expires time.Time
}

// Keys are the credentials that the services of one sandbox know.
type Keys struct {
	mu   sync.Mutex
	keys map[string]Key
}

// NewKeys knows the given keys, or the sandbox's own one when none is given.
func NewKeys(keys ...Key) *Keys {
	if len(keys) == 0 {
		keys = []Key{{
			AccessKey: AccessKey, Secret: Secret,
			ARN: "arn:aws:iam::" + Account + ":user/sandbox", UserID: "AIDASANDBOX",
		}}
	}
	k := &Keys{keys: map[string]Key{}}
	for _, key := range keys {
		k.keys[key.AccessKey] = key
	}
	return k
}

// Add makes a key known, or replaces it.
func (k *Keys) Add(key Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys[key.AccessKey] = key
}

// Lookup is the key with that id.
func (k *Keys) Lookup(accessKey string) (Key, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, ok := k.keys[accessKey]
	return key, ok
}

// Expire ends a key at the given time, as when a session runs out. It reports
// whether there is such a key.
func (k *Keys) Expire(accessKey string, at time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, ok := k.keys[accessKey]
	if ok {
		key.Expires = at
		k.keys[accessKey] = key
	}
	return ok
}
