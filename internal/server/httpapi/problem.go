package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/msghandler/msghandler/internal/server/guard"
)

// problem is an error of HTTP itself, which no call of gRPC has. Nothing was done.
type problem struct {
	reason string
	text   string
}

// problemTable has the status of HTTP and the code of each reason. Reasons are part of the API: they never change. No
// code is UNAVAILABLE or RESOURCE_EXHAUSTED, because a client repeats the call after these, which cannot help here.
var problemTable = map[string]struct {
	http int
	code codes.Code
}{
	"BROWSER_FORBIDDEN":  {http.StatusForbidden, codes.PermissionDenied},
	"METHOD_NOT_ALLOWED": {http.StatusMethodNotAllowed, codes.Unimplemented},
	"NEEDS_GRPC":         {http.StatusNotImplemented, codes.Unimplemented},
	"PATH_UNKNOWN":       {http.StatusNotFound, codes.Unimplemented},
	"CONTENT_TYPE":       {http.StatusUnsupportedMediaType, codes.InvalidArgument},
	"CONNECT_VERSION":    {http.StatusBadRequest, codes.InvalidArgument},
	"TIMEOUT_INVALID":    {http.StatusBadRequest, codes.InvalidArgument},
	"NOT_FRAMED":         {http.StatusBadRequest, codes.InvalidArgument},
	"LENGTH_REQUIRED":    {http.StatusLengthRequired, codes.InvalidArgument},
	"REQUEST_TOO_LARGE":  {http.StatusRequestEntityTooLarge, codes.InvalidArgument},
	"REQUEST_TOO_SLOW":   {http.StatusRequestTimeout, codes.DeadlineExceeded},
}

// problemf makes a problem with a reason of the table.
func problemf(reason, format string, args ...any) *problem {
	return &problem{reason, fmt.Sprintf(format, args...)}
}

// Error implements error.
func (p *problem) Error() string { return p.text }

// GRPCStatus is for status.FromError.
func (p *problem) GRPCStatus() *status.Status {
	st := status.New(problemTable[p.reason].code, p.text)
	if detailed, err := st.WithDetails(&errdetails.ErrorInfo{Reason: p.reason, Domain: guard.ErrorDomain}); err == nil {
		return detailed
	}
	return st
}

// answers says how the Connect protocol names each code, and with which status of HTTP.
var answers = map[codes.Code]struct {
	name string
	http int
}{
	codes.Canceled:           {"canceled", 499},
	codes.Unknown:            {"unknown", http.StatusInternalServerError},
	codes.InvalidArgument:    {"invalid_argument", http.StatusBadRequest},
	codes.DeadlineExceeded:   {"deadline_exceeded", http.StatusGatewayTimeout},
	codes.NotFound:           {"not_found", http.StatusNotFound},
	codes.AlreadyExists:      {"already_exists", http.StatusConflict},
	codes.PermissionDenied:   {"permission_denied", http.StatusForbidden},
	codes.ResourceExhausted:  {"resource_exhausted", http.StatusTooManyRequests},
	codes.FailedPrecondition: {"failed_precondition", http.StatusBadRequest},
	codes.Aborted:            {"aborted", http.StatusConflict},
	codes.OutOfRange:         {"out_of_range", http.StatusBadRequest},
	codes.Unimplemented:      {"unimplemented", http.StatusNotImplemented},
	codes.Internal:           {"internal", http.StatusInternalServerError},
	codes.Unavailable:        {"unavailable", http.StatusServiceUnavailable},
	codes.DataLoss:           {"data_loss", http.StatusInternalServerError},
	codes.Unauthenticated:    {"unauthenticated", http.StatusUnauthorized},
}

// failure is an error in JSON: the Connect protocol's code, message and details, and what a reader without a library
// for protobuf wants of the details.
type failure struct {
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Details []detail `json:"details,omitempty"`

	Reason string      `json:"reason,omitempty"`
	Field  string      `json:"field,omitempty"`
	Fields []violation `json:"fields,omitempty"`
	State  string      `json:"state,omitempty"`
	// RetryDelay is in seconds, as in 1s.
	RetryDelay string `json:"retryDelay,omitempty"`

	retryAfter time.Duration
}

// detail is one detail of a status, in the form of the Connect protocol.
type detail struct {
	Type  string          `json:"type"`
	Value string          `json:"value"`
	Debug json.RawMessage `json:"debug,omitempty"`
}

type violation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

// failureOf describes an error, and says which status of HTTP the error has.
func failureOf(err error) (f failure, httpStatus int) {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err) // as gRPC does
	}
	answer := answers[st.Code()]
	f.Code, f.Message = answer.name, st.Message()
	if f.Code == "" {
		f.Code, answer.http = answers[codes.Unknown].name, http.StatusInternalServerError
	}
	for _, packed := range st.Proto().GetDetails() {
		f.add(packed)
	}
	if own := (*problem)(nil); errors.As(err, &own) {
		return f, problemTable[own.reason].http
	}
	return f, answer.http
}

func (f *failure) add(packed *anypb.Any) {
	message, err := packed.UnmarshalNew()
	if err != nil {
		return // a status of this process has no detail of an unknown type
	}
	debug, _ := protojson.Marshal(message)
	f.Details = append(f.Details, detail{
		Type: string(message.ProtoReflect().Descriptor().FullName()), Debug: debug,
		Value: base64.RawStdEncoding.EncodeToString(packed.GetValue()),
	})
	f.read(message)
}

// read takes over what a reader wants of a detail.
func (f *failure) read(message proto.Message) {
	switch d := message.(type) {
	case *errdetails.ErrorInfo:
		f.Reason, f.State = d.GetReason(), d.GetMetadata()["state"]
	case *errdetails.BadRequest:
		for _, v := range d.GetFieldViolations() {
			f.Fields = append(f.Fields, violation{v.GetField(), v.GetDescription()})
		}
		if len(f.Fields) > 0 {
			f.Field = f.Fields[0].Field
		}
	case *errdetails.RetryInfo:
		f.retryAfter = d.GetRetryDelay().AsDuration()
		f.RetryDelay = strconv.FormatFloat(f.retryAfter.Seconds(), 'g', -1, 64) + "s"
	}
}

// writeError answers with an error in JSON.
func writeError(w http.ResponseWriter, err error) {
	f, httpStatus := failureOf(err)
	body, _ := json.Marshal(f) // strings alone
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.retryAfter.Seconds()))))
	}
	if httpStatus == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer") // HTTP demands that the answer says how to authenticate
	}
	write(w, httpStatus, "application/json", append(body, '\n'))
}
