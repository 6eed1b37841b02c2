package wire

import (
	"encoding/base64"
	"strconv"
)

// Page is one page of a list and the token of the next one, empty on the last. token is
// that of the request, empty for the first page; false when no page gave it out.
func Page[T any](all []T, token string, size int) (part []T, next string, ok bool) {
	from := 0
	if token != "" {
		raw, err := base64.StdEncoding.DecodeString(token)
		if err == nil {
			from, err = strconv.Atoi(string(raw))
		}
		if err != nil || from < 0 || from > len(all) {
			return nil, "", false
		}
	}
	end := min(from+size, len(all))
	if end < len(all) {
		next = base64.StdEncoding.EncodeToString([]byte(strconv.Itoa(end)))
	}
	return append([]T{}, all[from:end]...), next, true
}
