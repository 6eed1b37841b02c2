package apiserver

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eksbg/eksbg/internal/sandbox/kube/registry"
)

const (
	mediaJSON  = "application/json"
	mediaYAML  = "application/yaml"
	mediaProto = "application/vnd.kubernetes.protobuf"
)

// accepted is what a client wants to get: a media type, and the transformation asked for
// by the parameter "as" (Table, PartialObjectMetadata, PartialObjectMetadataList).
type accepted struct {
	info runtime.SerializerInfo
	as   string
}

// fallback is used for what cannot be negotiated.
var fallback = mustSerializer(mediaJSON)

func mustSerializer(media string) accepted {
	info, ok := runtime.SerializerInfoForMediaType(registry.Codecs.SupportedMediaTypes(), media)
	if !ok {
		panic("apiserver: client-go has no serializer for " + media)
	}
	return accepted{info: info}
}

// negotiate takes the first clause of the Accept header that can be served. With watching
// only media types that can be streamed can. res may be nil; the objects of a custom one
// have no protobuf form, only their metadata has.
func negotiate(r *http.Request, res *registry.Resource, watching bool) (accepted, error) {
	header := r.Header.Get("Accept")
	if header == "" {
		return fallback, nil
	}
	for _, clause := range strings.Split(header, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil {
			continue
		}
		if media == "*/*" || media == "application/*" {
			media = mediaJSON
		}
		info, ok := runtime.SerializerInfoForMediaType(registry.Codecs.SupportedMediaTypes(), media)
		if !ok || media != mediaJSON && media != mediaYAML && media != mediaProto || watching && info.StreamSerializer == nil {
			continue
		}
		as := params["as"]
		if media == mediaProto && as == "" && res != nil && res.Custom {
			continue
		}
		switch as {
		case "", "PartialObjectMetadata", "PartialObjectMetadataList":
		case "Table":
			if media == mediaProto {
				continue // tables have no protobuf form
			}
		default:
			continue
		}
		if as != "" && (params["g"] != metav1.GroupName || params["v"] != "v1") {
			continue
		}
		return accepted{info, as}, nil
	}
	return fallback, apierrors.NewGenericServerResponse(http.StatusNotAcceptable, strings.ToLower(r.Method), schema.GroupResource{}, "",
		"only the following media types are accepted: "+strings.Join([]string{mediaJSON, mediaYAML, mediaProto}, ", "), 0, true)
}

// write sends an object in the negotiated form.
func (a accepted) write(w http.ResponseWriter, code int, o runtime.Object) {
	var b bytes.Buffer
	if err := a.info.Serializer.Encode(o, &b); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", a.info.MediaType)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // a client that left is its own affair
}

// maxBody is kube-apiserver's limit for request bodies.
const maxBody = 3 << 20

func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, apierrors.NewBadRequest("reading the request body: " + err.Error())
	}
	if len(b) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	return b, nil
}

// decode reads an object from a request body. kind is what it is when it does not say.
func decode(r *http.Request, body []byte, kind schema.GroupVersionKind) (runtime.Object, error) {
	media := mediaJSON
	if h := r.Header.Get("Content-Type"); h != "" {
		m, _, err := mime.ParseMediaType(h)
		if err != nil {
			return nil, unsupportedMedia(h)
		}
		media = m
	}
	info, ok := runtime.SerializerInfoForMediaType(registry.Codecs.SupportedMediaTypes(), media)
	if !ok {
		return nil, unsupportedMedia(media)
	}
	d := info.Serializer
	if strict(r) && info.StrictSerializer != nil {
		d = info.StrictSerializer
	}
	o, _, err := d.Decode(body, &kind, nil)
	if err != nil {
		return nil, decodeError(err, kind)
	}
	return o, nil
}

// strict is true when unknown fields are to be refused (fieldValidation=Strict, which is
// what kubectl asks for).
func strict(r *http.Request) bool {
	return r.URL.Query().Get("fieldValidation") == metav1.FieldValidationStrict
}

func decodeError(err error, kind schema.GroupVersionKind) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", kind.Kind, kind.Version, kind.Kind, err))
}

func unsupportedMedia(got string) error {
	return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "",
		"the body of the request was in an unknown format ("+got+") - accepted media types include: "+
			strings.Join([]string{mediaJSON, mediaYAML, mediaProto}, ", "), 0, true)
}
