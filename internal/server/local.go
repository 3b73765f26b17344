package server

import (
	"context"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/internal/access"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// localOperators is AdminService for callers in this process, whose calls pass no interceptor. The identity of the
// caller is in the context.
type localOperators struct {
	adminv1.UnimplementedAdminServiceServer
	operators *operators
}

// GetMessage implements AdminService.
func (l *localOperators) GetMessage(
	ctx context.Context, r *adminv1.GetMessageRequest,
) (*adminv1.GetMessageResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_GetMessage_FullMethodName, r, l.operators.GetMessage)
}

// ListMessages implements AdminService.
func (l *localOperators) ListMessages(
	ctx context.Context, r *adminv1.ListMessagesRequest,
) (*adminv1.ListMessagesResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_ListMessages_FullMethodName, r, l.operators.ListMessages)
}

// GetStats implements AdminService.
func (l *localOperators) GetStats(
	ctx context.Context, r *adminv1.GetStatsRequest,
) (*adminv1.GetStatsResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_GetStats_FullMethodName, r, l.operators.GetStats)
}

// GroupMessages implements AdminService.
func (l *localOperators) GroupMessages(
	ctx context.Context, r *adminv1.GroupMessagesRequest,
) (*adminv1.GroupMessagesResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_GroupMessages_FullMethodName, r, l.operators.GroupMessages)
}

// FindMessages implements AdminService.
func (l *localOperators) FindMessages(
	ctx context.Context, r *adminv1.FindMessagesRequest,
) (*adminv1.FindMessagesResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_FindMessages_FullMethodName, r, l.operators.FindMessages)
}

// RetryMessages implements AdminService.
func (l *localOperators) RetryMessages(
	ctx context.Context, r *adminv1.RetryMessagesRequest,
) (*adminv1.RetryMessagesResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_RetryMessages_FullMethodName, r, l.operators.RetryMessages)
}

// DiscardMessages implements AdminService.
func (l *localOperators) DiscardMessages(
	ctx context.Context, r *adminv1.DiscardMessagesRequest,
) (*adminv1.DiscardMessagesResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_DiscardMessages_FullMethodName, r, l.operators.DiscardMessages)
}

// ListAudit implements AdminService.
func (l *localOperators) ListAudit(
	ctx context.Context, r *adminv1.ListAuditRequest,
) (*adminv1.ListAuditResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_ListAudit_FullMethodName, r, l.operators.ListAudit)
}

// GetConfiguration implements AdminService.
func (l *localOperators) GetConfiguration(
	ctx context.Context, r *adminv1.GetConfigurationRequest,
) (*adminv1.GetConfigurationResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_GetConfiguration_FullMethodName, r, l.operators.GetConfiguration)
}

// ListFinished implements AdminService.
func (l *localOperators) ListFinished(
	ctx context.Context, r *adminv1.ListFinishedRequest,
) (*adminv1.ListFinishedResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_ListFinished_FullMethodName, r, l.operators.ListFinished)
}

// GetFinished implements AdminService.
func (l *localOperators) GetFinished(
	ctx context.Context, r *adminv1.GetFinishedRequest,
) (*adminv1.GetFinishedResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_GetFinished_FullMethodName, r, l.operators.GetFinished)
}

// ReplayMessages implements AdminService.
func (l *localOperators) ReplayMessages(
	ctx context.Context, r *adminv1.ReplayMessagesRequest,
) (*adminv1.ReplayMessagesResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_ReplayMessages_FullMethodName, r, l.operators.ReplayMessages)
}

// ListDeadLetterQueues implements AdminService.
func (l *localOperators) ListDeadLetterQueues(
	ctx context.Context, r *adminv1.ListDeadLetterQueuesRequest,
) (*adminv1.ListDeadLetterQueuesResponse, error) {
	const method = adminv1.AdminService_ListDeadLetterQueues_FullMethodName
	return callLocally(ctx, l, method, r, l.operators.ListDeadLetterQueues)
}

// ListDeadLetters implements AdminService.
func (l *localOperators) ListDeadLetters(
	ctx context.Context, r *adminv1.ListDeadLettersRequest,
) (*adminv1.ListDeadLettersResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_ListDeadLetters_FullMethodName, r, l.operators.ListDeadLetters)
}

// GetDeadLetter implements AdminService.
func (l *localOperators) GetDeadLetter(
	ctx context.Context, r *adminv1.GetDeadLetterRequest,
) (*adminv1.GetDeadLetterResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_GetDeadLetter_FullMethodName, r, l.operators.GetDeadLetter)
}

// CountDeadLetters implements AdminService.
func (l *localOperators) CountDeadLetters(
	ctx context.Context, r *adminv1.CountDeadLettersRequest,
) (*adminv1.CountDeadLettersResponse, error) {
	return callLocally(ctx, l, adminv1.AdminService_CountDeadLetters_FullMethodName, r, l.operators.CountDeadLetters)
}

// ReplayDeadLetters implements AdminService.
func (l *localOperators) ReplayDeadLetters(
	ctx context.Context, r *adminv1.ReplayDeadLettersRequest,
) (*adminv1.ReplayDeadLettersResponse, error) {
	const method = adminv1.AdminService_ReplayDeadLetters_FullMethodName
	return callLocally(ctx, l, method, r, l.operators.ReplayDeadLetters)
}

// DiscardDeadLetters implements AdminService.
func (l *localOperators) DiscardDeadLetters(
	ctx context.Context, r *adminv1.DiscardDeadLettersRequest,
) (*adminv1.DiscardDeadLettersResponse, error) {
	const method = adminv1.AdminService_DiscardDeadLetters_FullMethodName
	return callLocally(ctx, l, method, r, l.operators.DiscardDeadLetters)
}

// TailMessages implements AdminService.
func (l *localOperators) TailMessages(
	r *adminv1.TailMessagesRequest, stream grpc.ServerStreamingServer[adminv1.TailMessagesResponse],
) error {
	const method = adminv1.AdminService_TailMessages_FullMethodName
	if err := permits(access.From(stream.Context()), method, nil); err != nil {
		return l.operators.server.refuseCaller(stream.Context(), method, "", err)
	}
	return l.operators.TailMessages(r, stream)
}

// callLocally makes a call that the caller in the context may make.
func callLocally[Q, A any](
	ctx context.Context, l *localOperators, method string, r Q, call func(context.Context, Q) (*A, error),
) (*A, error) {
	if err := permits(access.From(ctx), method, r); err != nil {
		return nil, l.operators.server.refuseCaller(ctx, method, "", err)
	}
	return call(ctx, r)
}
