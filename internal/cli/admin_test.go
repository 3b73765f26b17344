package cli

import (
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A coordinator that lacks a method or a field is to be upgraded; another server is to be replaced in --server.
func TestOlderCoordinatorIsToldFromOtherServers(t *testing.T) {
	t.Parallel()
	fields, err := status.New(codes.Unimplemented, "the request has fields that this version does not know").
		WithDetails(&errdetails.ErrorInfo{Reason: "UNKNOWN_FIELDS"})
	if err != nil {
		t.Fatal(err)
	}
	for text, failure := range map[string]error{
		"an older version without this command or flag; nothing was done; upgrade": fields.Err(),
		"(unknown method GroupMessages": status.Error(codes.Unimplemented,
			"unknown method GroupMessages for service msghandler.v1.AdminService"),
		"is no coordinator": status.Error(codes.Unimplemented, "unknown service msghandler.v1.AdminService"),
	} {
		got := (&admin{server: "127.0.0.1:9090"}).explain(failure).Error()
		older := strings.Contains(got, "older version")
		if !strings.Contains(got, text) || older == strings.Contains(text, "no coordinator") {
			t.Errorf("%v: the error is %s", failure, got)
		}
	}
}
