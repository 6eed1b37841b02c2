package wire

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// APIError is what a service answers instead of a result.
type APIError struct {
	Status  int
	Code    string
	Message string
}

func (e *APIError) Error() string { return e.Code + ": " + e.Message }

// Errorf is an APIError of status 400.
func Errorf(code, format string, args ...any) *APIError {
	return &APIError{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

// QueryAuthError says an error of Keys.Check in the codes of the query and XML
// services, all with status 403.
func QueryAuthError(err error) *APIError {
	e := &APIError{Status: http.StatusForbidden, Message: sentence(err)}
	switch {
	case errors.Is(err, ErrUnsigned):
		e.Code, e.Message = "MissingAuthenticationToken", "Request is missing Authentication Token"
	case errors.Is(err, ErrUnknownKey):
		e.Code = "InvalidClientTokenId"
	case errors.Is(err, ErrExpired):
		e.Code = "ExpiredToken"
	default:
		e.Code = "SignatureDoesNotMatch"
	}
	return e
}

// JSONAuthError says an error of Keys.Check in the codes and words of the JSON services.
func JSONAuthError(err error) (code, message string) {
	switch {
	case errors.Is(err, ErrUnsigned):
		return "MissingAuthenticationTokenException", "Missing Authentication Token"
	case errors.Is(err, ErrUnknownKey):
		return "UnrecognizedClientException", "The security token included in the request is invalid."
	case errors.Is(err, ErrExpired):
		return "ExpiredTokenException", "The security token included in the request is expired"
	}
	return "InvalidSignatureException", err.Error()
}

func sentence(err error) string {
	s := err.Error()
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// Params are the parameters of a query request, from its form body and its URL.
func Params(r *http.Request, body []byte) (url.Values, error) {
	params := r.URL.Query()
	if r.Method != http.MethodPost {
		return params, nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return params, Errorf("MalformedQueryString", "The query string is malformed")
	}
	for k, v := range form {
		params[k] = append(params[k], v...)
	}
	return params, nil
}

// node is one place in the tree that dotted parameter names span.
type node struct {
	value string
	set   bool
	kids  map[string]*node
}

func (n *node) at(name string) *node {
	if n.kids == nil {
		n.kids = map[string]*node{}
	}
	if n.kids[name] == nil {
		n.kids[name] = &node{}
	}
	return n.kids[name]
}

// DecodeQuery fills a struct, whose fields are named as the API names its members,
// from the parameters of a query request: lists from Name.member.1, maps from
// Name.entry.1.key and .value, times from RFC 3339. Pointers and slices stay nil
// where the request says nothing. See https://smithy.io/2.0/aws/protocols/aws-query-protocol.html.
func DecodeQuery(params url.Values, into any) error {
	root := &node{}
	for name, values := range params {
		at := root
		for part := range strings.SplitSeq(name, ".") {
			at = at.at(part)
		}
		at.value, at.set = values[0], true
	}
	return root.decode(reflect.ValueOf(into).Elem(), "")
}

func (n *node) decode(v reflect.Value, name string) error {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return n.decode(v.Elem(), name)
	case reflect.Struct:
		if v.Type() == timeType {
			at, err := time.Parse(time.RFC3339, n.value)
			v.Set(reflect.ValueOf(at))
			return malformed(err, name, n.value)
		}
		for i := range v.NumField() {
			field := v.Type().Field(i).Name
			if kid := n.kids[field]; kid != nil {
				if err := kid.decode(v.Field(i), strings.TrimPrefix(name+"."+field, ".")); err != nil {
					return err
				}
			}
		}
		return nil
	case reflect.Slice:
		return n.decodeList(v, name)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, entry := range n.at("entry").ordered() {
			v.SetMapIndex(reflect.ValueOf(entry.at("key").value), reflect.ValueOf(entry.at("value").value))
		}
		return nil
	case reflect.String:
		v.SetString(n.value)
		return nil
	case reflect.Bool:
		b, err := strconv.ParseBool(n.value)
		v.SetBool(b)
		return malformed(err, name, n.value)
	case reflect.Int, reflect.Int32, reflect.Int64:
		i, err := strconv.ParseInt(n.value, 10, v.Type().Bits())
		v.SetInt(i)
		return malformed(err, name, n.value)
	}
	return fmt.Errorf("decode %s: a %s is not part of the query protocol", name, v.Type())
}

func (n *node) decodeList(v reflect.Value, name string) error {
	items := n.at("member").ordered()
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		if err := item.decode(v.Index(i), fmt.Sprintf("%s.%d", name, i+1)); err != nil {
			return err
		}
	}
	return nil
}

// ordered are the children named by numbers, in their order.
func (n *node) ordered() []*node {
	numbers := map[int]*node{}
	for name, kid := range n.kids {
		if i, err := strconv.Atoi(name); err == nil {
			numbers[i] = kid
		}
	}
	var out []*node
	for _, i := range slices.Sorted(maps.Keys(numbers)) {
		out = append(out, numbers[i])
	}
	return out
}

func malformed(err error, name, value string) error {
	if err == nil {
		return nil
	}
	return Errorf("MalformedInput", "%q is not a valid value of %s", value, name)
}

var timeType = reflect.TypeFor[time.Time]()

// ServeQuery answers one request of a query API: do works out the result and the
// name of the operation, or the error that is answered and noted in the log.
func ServeQuery(w http.ResponseWriter, r *http.Request, xmlns string, do func(r *http.Request, body []byte) (any, string, *APIError)) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	result, operation, apiErr := do(r, body)
	if apiErr != nil {
		Note(r.Context(), "error", apiErr.Error())
		WriteXMLError(w, xmlns, apiErr)
		return
	}
	WriteQueryResult(w, xmlns, operation, result)
}

// WriteQueryResult answers a query operation. result is a struct whose fields are
// named as the API names its members, or nil; nil pointers, nil slices, nil maps,
// zero times and empty strings are left out.
func WriteQueryResult(w http.ResponseWriter, xmlns, operation string, result any) {
	id := uuid.NewString()
	var b bytes.Buffer
	fmt.Fprintf(&b, `<%sResponse xmlns="%s">`, operation, xmlns)
	element(&b, operation+"Result", reflect.ValueOf(result))
	fmt.Fprintf(&b, "<ResponseMetadata><RequestId>%s</RequestId></ResponseMetadata></%sResponse>", id, operation)
	WriteXML(w, http.StatusOK, id, b.Bytes())
}

// WriteXMLError answers with an error in the form that the query services and
// Route 53 share.
func WriteXMLError(w http.ResponseWriter, xmlns string, e *APIError) {
	id := uuid.NewString()
	var b bytes.Buffer
	kind := "Sender"
	if e.Status >= 500 {
		kind = "Receiver"
	}
	fmt.Fprintf(&b, `<ErrorResponse xmlns="%s"><Error><Type>%s</Type><Code>`, xmlns, kind)
	escape(&b, e.Code)
	b.WriteString("</Code><Message>")
	escape(&b, e.Message)
	fmt.Fprintf(&b, "</Message></Error><RequestId>%s</RequestId></ErrorResponse>", id)
	WriteXML(w, e.Status, id, b.Bytes())
}

// WriteXML sends a document with the headers that AWS's XML services send.
func WriteXML(w http.ResponseWriter, status int, requestID string, document []byte) {
	w.Header().Set("Content-Type", "text/xml")
	w.Header().Set("X-Amzn-Requestid", requestID)
	w.WriteHeader(status)
	_, _ = w.Write([]byte(xml.Header))
	_, _ = w.Write(document)
}

func element(b *bytes.Buffer, name string, v reflect.Value) {
	if !v.IsValid() || empty(v) {
		return
	}
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	fmt.Fprintf(b, "<%s>", name)
	switch v.Kind() {
	case reflect.Struct:
		if at, ok := v.Interface().(time.Time); ok {
			b.WriteString(at.UTC().Format("2006-01-02T15:04:05.000Z"))
			break
		}
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				element(b, field.Name, v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			element(b, "member", v.Index(i))
		}
	case reflect.Map:
		for _, k := range slices.Sorted(maps.Keys(v.Interface().(map[string]string))) {
			b.WriteString("<entry>")
			element(b, "key", reflect.ValueOf(k))
			element(b, "value", v.MapIndex(reflect.ValueOf(k)))
			b.WriteString("</entry>")
		}
	default:
		escape(b, fmt.Sprint(v.Interface()))
	}
	fmt.Fprintf(b, "</%s>", name)
}

func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return v.IsNil()
	case reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		at, ok := v.Interface().(time.Time)
		return ok && at.IsZero()
	}
	return false
}

func escape(b *bytes.Buffer, s string) { _ = xml.EscapeText(b, []byte(s)) }

// AsAPIError is err as an APIError; one that is none already is the service's own
// fault.
func AsAPIError(err error) *APIError {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*APIError](err); ok {
		return e
	}
	return &APIError{Status: http.StatusInternalServerError, Code: "InternalFailure", Message: err.Error()}
}

// QueryFault is the error of a fault in the statuses of the query services: 403
// for what is about credentials, 5xx for what is the service's fault, else 400.
func QueryFault(f Fault) *APIError {
	e := &APIError{Status: f.Status, Code: f.Error, Message: f.Message}
	if e.Code == "" {
		e.Code = strings.ReplaceAll(http.StatusText(f.Status), " ", "")
	}
	if e.Status == 0 {
		e.Status = http.StatusBadRequest
		switch e.Code {
		case "ExpiredToken", "InvalidClientTokenId", "SignatureDoesNotMatch", "AccessDenied", "MissingAuthenticationToken":
			e.Status = http.StatusForbidden
		case "InternalFailure", "InternalError":
			e.Status = http.StatusInternalServerError
		case "ServiceUnavailable":
			e.Status = http.StatusServiceUnavailable
		}
	}
	if e.Message == "" {
		e.Message = FaultMessage(e.Code)
	}
	return e
}

// FaultMessage is what AWS says with a code, where that is known.
func FaultMessage(code string) string {
	switch code {
	case "Throttling", "ThrottlingException", "RequestLimitExceeded":
		return "Rate exceeded"
	case "ExpiredToken", "ExpiredTokenException":
		return "The security token included in the request is expired"
	case "PriorRequestNotComplete":
		return "The request was rejected because Route 53 was still processing a prior request."
	case "ServiceUnavailable", "ServiceUnavailableException":
		return "Service is unavailable"
	}
	return code
}
