package app

import (
	"context"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/console/pages"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// admin is the admin API for a user of the console, or nil while the API is not open.
func (a *App) admin(by string) pages.Admin {
	if server := a.doors.server.Load(); server != nil {
		return adminv1.NewAdminServiceClient(visitor{server.Operators(), by})
	}
	return nil
}

// visitor calls the admin API on behalf of a user of the console, whose identity is in the context, so that the log
// names the user.
type visitor struct {
	grpc.ClientConnInterface
	by string
}

// Network implements net.Addr.
func (visitor) Network() string { return "http" }

// String implements net.Addr.
func (v visitor) String() string { return "console, " + v.by }

// Invoke implements grpc.ClientConnInterface. The API's error text is for readers, so gRPC's words around the text are
// removed.
func (v visitor) Invoke(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	ctx = audit.WithOrigin(ctx, audit.Origin{Via: audit.Console, From: v.by})
	err := v.ClientConnInterface.Invoke(peer.NewContext(ctx, &peer.Peer{Addr: v}), method, request, answer, options...)
	switch {
	case err == nil:
		return nil
	case reasonOf(err) == "MESSAGE_NOT_FOUND":
		return halfmsg.ErrNotFound
	}
	return pages.RefusedError{Status: httpStatus(status.Code(err)), Text: status.Convert(err).Message()}
}

// httpStatus translates a code of the API: it tells the caller's fault from ours, and whether a retry may help.
func httpStatus(code codes.Code) int {
	switch code {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.NotFound:
		return http.StatusNotFound
	case codes.FailedPrecondition:
		return http.StatusConflict
	case codes.Unavailable, codes.ResourceExhausted, codes.Canceled:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}
