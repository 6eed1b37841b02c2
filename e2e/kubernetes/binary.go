package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gofrs/flock"
)

// Version is the release that the binary is built from: k8s.io/kubernetes in
// controlplane/go.mod, which a test holds it against.
const Version = "v1.37.2"

// cacheVariable names the folder of the cache to who wants another one.
const cacheVariable = "EKSBG_E2E_CACHE"

// Binary gives the path of the control-plane binary, and builds it when the cache has
// none for these sources and this Go. Several processes may ask at once: one builds, the
// others wait until ctx ends. A cold build takes minutes.
func Binary(ctx context.Context) (string, error) {
	source, err := sourceFolder()
	if err != nil {
		return "", err
	}
	key, err := cacheKey(source)
	if err != nil {
		return "", fmt.Errorf("find the control-plane binary: %w", err)
	}
	dir, err := cacheFolder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "controlplane-"+key)
	if executable(path) {
		return path, nil
	}
	lock := flock.New(path + ".lock")
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		return "", fmt.Errorf("wait for another build of the control plane: %w", err)
	}
	defer lock.Unlock() //nolint:errcheck // the process's end frees it too
	if executable(path) {
		return path, nil
	}
	return path, build(ctx, source, path)
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o100 != 0
}

// sourceFolder is controlplane/ beside this file, wherever the tests run.
func sourceFolder() (string, error) {
	_, here, _, ok := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(filepath.Dir(here)), "controlplane")
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); !ok || err != nil {
		return "", fmt.Errorf("find the sources of the control plane in %s: build the tests without -trimpath", dir)
	}
	return dir, nil
}

// cacheKey is the version, the Go that builds and a hash of all that the binary is
// built from.
func cacheKey(source string) (string, error) {
	sum := sha256.New()
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(b))
		sum.Write(b) //nolint:errcheck // never fails
	}
	hash := hex.EncodeToString(sum.Sum(nil))[:12]
	return strings.Join([]string{Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, hash}, "-"), nil
}

func cacheFolder() (string, error) {
	dir := os.Getenv(cacheVariable)
	if dir == "" {
		cache, err := os.UserCacheDir() // XDG_CACHE_HOME or ~/.cache
		if err != nil {
			return "", fmt.Errorf("find a cache for the control-plane binary: %w; set %s", err, cacheVariable)
		}
		dir = filepath.Join(cache, "eksbg-e2e")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache of the control-plane binary: %w", err)
	}
	return dir, nil
}

// build links the binary and puts it in place in one step.
func build(ctx context.Context, source, path string) error {
	part := path + ".part"
	const base = "k8s.io/component-base/version."
	minor := strings.Split(Version, ".")[1]
	flags := fmt.Sprintf("-s -w -X %sgitVersion=%s -X %sgitMajor=1 -X %sgitMinor=%s", base, Version, base, base, minor)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", flags, "-o", part, ".")
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the control plane in %s: %w\n%s", source, err, out)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("keep the control-plane binary: %w", err)
	}
	return nil
}
