package app

import (
	"context"
	"net/http"

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
	if server := a.server.Load(); server != nil {
		return visitor{server.Operators(), by}
	}
	return nil
}

// visitor calls the admin API on behalf of a user of the console, whose identity is in the context, so that the log
// names the user.
type visitor struct {
	admin adminv1.AdminServiceServer
	by    string
}

// Network implements net.Addr.
func (visitor) Network() string { return "http" }

// String implements net.Addr.
func (v visitor) String() string { return "console, " + v.by }

// GetMessage implements pages.Admin.
func (v visitor) GetMessage(
	ctx context.Context, r *adminv1.GetMessageRequest,
) (*adminv1.GetMessageResponse, error) {
	return ask(ctx, v, v.admin.GetMessage, r)
}

// ListMessages implements pages.Admin.
func (v visitor) ListMessages(
	ctx context.Context, r *adminv1.ListMessagesRequest,
) (*adminv1.ListMessagesResponse, error) {
	return ask(ctx, v, v.admin.ListMessages, r)
}

// GroupMessages implements pages.Admin.
func (v visitor) GroupMessages(
	ctx context.Context, r *adminv1.GroupMessagesRequest,
) (*adminv1.GroupMessagesResponse, error) {
	return ask(ctx, v, v.admin.GroupMessages, r)
}

// FindMessages implements pages.Admin.
func (v visitor) FindMessages(
	ctx context.Context, r *adminv1.FindMessagesRequest,
) (*adminv1.FindMessagesResponse, error) {
	return ask(ctx, v, v.admin.FindMessages, r)
}

// RetryMessages implements pages.Admin.
func (v visitor) RetryMessages(
	ctx context.Context, r *adminv1.RetryMessagesRequest,
) (*adminv1.RetryMessagesResponse, error) {
	return ask(ctx, v, v.admin.RetryMessages, r)
}

// DiscardMessages implements pages.Admin.
func (v visitor) DiscardMessages(
	ctx context.Context, r *adminv1.DiscardMessagesRequest,
) (*adminv1.DiscardMessagesResponse, error) {
	return ask(ctx, v, v.admin.DiscardMessages, r)
}

// ListFinished implements pages.Admin.
func (v visitor) ListFinished(
	ctx context.Context, r *adminv1.ListFinishedRequest,
) (*adminv1.ListFinishedResponse, error) {
	return ask(ctx, v, v.admin.ListFinished, r)
}

// GetFinished implements pages.Admin.
func (v visitor) GetFinished(
	ctx context.Context, r *adminv1.GetFinishedRequest,
) (*adminv1.GetFinishedResponse, error) {
	return ask(ctx, v, v.admin.GetFinished, r)
}

// ReplayMessages implements pages.Admin.
func (v visitor) ReplayMessages(
	ctx context.Context, r *adminv1.ReplayMessagesRequest,
) (*adminv1.ReplayMessagesResponse, error) {
	return ask(ctx, v, v.admin.ReplayMessages, r)
}

// ListAudit implements pages.Admin.
func (v visitor) ListAudit(
	ctx context.Context, r *adminv1.ListAuditRequest,
) (*adminv1.ListAuditResponse, error) {
	return ask(ctx, v, v.admin.ListAudit, r)
}

// ListDeadLetterQueues implements pages.Admin.
func (v visitor) ListDeadLetterQueues(
	ctx context.Context, r *adminv1.ListDeadLetterQueuesRequest,
) (*adminv1.ListDeadLetterQueuesResponse, error) {
	return ask(ctx, v, v.admin.ListDeadLetterQueues, r)
}

// ListDeadLetters implements pages.Admin.
func (v visitor) ListDeadLetters(
	ctx context.Context, r *adminv1.ListDeadLettersRequest,
) (*adminv1.ListDeadLettersResponse, error) {
	return ask(ctx, v, v.admin.ListDeadLetters, r)
}

// GetDeadLetter implements pages.Admin.
func (v visitor) GetDeadLetter(
	ctx context.Context, r *adminv1.GetDeadLetterRequest,
) (*adminv1.GetDeadLetterResponse, error) {
	return ask(ctx, v, v.admin.GetDeadLetter, r)
}

// CountDeadLetters implements pages.Admin.
func (v visitor) CountDeadLetters(
	ctx context.Context, r *adminv1.CountDeadLettersRequest,
) (*adminv1.CountDeadLettersResponse, error) {
	return ask(ctx, v, v.admin.CountDeadLetters, r)
}

// ReplayDeadLetters implements pages.Admin.
func (v visitor) ReplayDeadLetters(
	ctx context.Context, r *adminv1.ReplayDeadLettersRequest,
) (*adminv1.ReplayDeadLettersResponse, error) {
	return ask(ctx, v, v.admin.ReplayDeadLetters, r)
}

// DiscardDeadLetters implements pages.Admin.
func (v visitor) DiscardDeadLetters(
	ctx context.Context, r *adminv1.DiscardDeadLettersRequest,
) (*adminv1.DiscardDeadLettersResponse, error) {
	return ask(ctx, v, v.admin.DiscardDeadLetters, r)
}

// ask makes a call. The API's error text is for readers, so gRPC's words around the text are removed.
func ask[Q, A any](ctx context.Context, v visitor, call func(context.Context, Q) (A, error), r Q) (A, error) {
	ctx = audit.WithOrigin(ctx, audit.Origin{Via: audit.Console, From: v.by})
	answer, err := call(peer.NewContext(ctx, &peer.Peer{Addr: v}), r)
	switch {
	case err == nil:
		return answer, nil
	case reasonOf(err) == "MESSAGE_NOT_FOUND":
		return answer, halfmsg.ErrNotFound
	}
	return answer, pages.RefusedError{Status: httpStatus(status.Code(err)), Text: status.Convert(err).Message()}
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
