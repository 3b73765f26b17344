package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/policy"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// AuditTrail keeps records of changes and refusals, and lists them.
type AuditTrail interface {
	audit.Recorder
	List(ctx context.Context, q audit.Query) (audit.Page, error)
}

// noTrail keeps nothing.
type noTrail struct{ audit.Recorder }

func (noTrail) List(context.Context, audit.Query) (audit.Page, error) { return audit.Page{}, nil }

// withOrigin notes in the context from where and by which protocol a call comes. A caller in this process has noted it.
func withOrigin(ctx context.Context) context.Context {
	if audit.OriginOf(ctx) != (audit.Origin{}) {
		return ctx
	}
	via := audit.HTTP
	if of := metadata.ValueFromIncomingContext(ctx, "content-type"); len(of) > 0 &&
		strings.HasPrefix(of[0], "application/grpc") {
		via = audit.GRPC
	}
	return audit.WithOrigin(ctx, audit.Origin{Via: via, From: addressOf(ctx)})
}

// recordRefusal records a call that is refused because of its caller. Clients may call any method, so an unknown
// method has one name.
func (s *Server) recordRefusal(ctx context.Context, method, producer string, err error) {
	need, known := needs[method]
	if !known {
		method = "an unknown method"
	}
	kind := audit.ByRole
	switch {
	case errors.Is(err, access.ErrUnauthenticated):
		kind = audit.ByIdentity
	case need.asProducer:
		kind = audit.ByProducer
	}
	s.config.Audit.Record(withOrigin(ctx), audit.Record{
		Action: audit.Action(method), Producer: producer, Result: audit.Refused, Refusal: kind, Cause: err.Error(),
	})
}

// recordPolicyRefusal records a half message that names what its producer may not name. Other errors are no refusals of
// a caller.
func (s *Server) recordPolicyRefusal(ctx context.Context, producer string, err error) {
	if !errors.Is(err, policy.ErrForbidden) && !errors.Is(err, halfmsg.ErrForbidden) {
		return
	}
	s.config.Audit.Record(withOrigin(ctx), audit.Record{
		Action: msghandlerv1.MessageHandlerService_SendHalfMessage_FullMethodName, Producer: producer,
		Result: audit.Refused, Refusal: audit.ByPolicy, Cause: err.Error(),
	})
}

// recordChange records who changed which messages, and why; and of which messages the outcome is unknown. The error of
// another message says that nothing was done with the message.
func (s *Server) recordChange(
	ctx context.Context, r audit.Record, names []halfmsg.Name, results []halfmsg.Result,
) {
	var done, unknown []string
	var cause error
	for i, r := range results {
		switch {
		case r.Err == nil:
			done = append(done, names[i].String())
		case !untouched(r.Err):
			unknown = append(unknown, names[i].String())
			cause = r.Err
		}
	}
	r.Producer = producerOfAll(names)
	ctx = withOrigin(ctx)
	if r.Names, r.Result = done, audit.Done; len(done) > 0 {
		s.config.Audit.Record(ctx, r)
	}
	if r.Names, r.Result = unknown, audit.Failed; len(unknown) > 0 {
		r.Cause = faultOf(cause).text
		s.config.Audit.Record(ctx, r)
	}
}

// untouched says that an error left the message as it is.
func untouched(err error) bool {
	switch faultOf(err).code { //nolint:exhaustive // the others may have changed the message
	case codes.NotFound, codes.FailedPrecondition, codes.DataLoss, codes.PermissionDenied:
		return true
	}
	return false
}

// producerOfAll is the producer of all names, if they have the same.
func producerOfAll(names []halfmsg.Name) string {
	for _, name := range names {
		if name.Producer != names[0].Producer {
			return ""
		}
	}
	return names[0].Producer
}

// filterText describes the filter of a request.
func filterText(query halfmsg.Query) string {
	parts := append([]string{"state=" + query.State.String()}, textsOf([]filterField{
		{"producer", query.Producer},
		{"exchange", query.Exchange},
		{"broker", query.Broker},
		{"error", query.Error},
		{"cause", query.Cause},
		{"id_prefix", query.IDPrefix},
		{"routing_key", query.RoutingKey},
		{"header", headerText(query.HeaderName)},
	})...)
	if query.MinAge > 0 {
		parts = append(parts, "min_age="+query.MinAge.String())
	}
	return strings.Join(parts, " ")
}

// filterField is a field of a filter.
type filterField struct{ name, value string }

// textsOf describes the fields that are not empty.
func textsOf(fields []filterField) (texts []string) {
	for _, f := range fields {
		if f.value != "" {
			texts = append(texts, fmt.Sprintf("%s=%q", f.name, f.value))
		}
	}
	return texts
}

// headerText is the header of a filter, without its value, which is content of a message.
func headerText(name string) string {
	if name == "" {
		return ""
	}
	return name + "=..."
}

// ListAudit implements AdminService.
func (o *operators) ListAudit(
	ctx context.Context, r *adminv1.ListAuditRequest,
) (*adminv1.ListAuditResponse, error) {
	const call = "ListAudit"
	query, err := auditQuery(r)
	if err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	ctx, cancel := o.server.withStoreTimeout(ctx)
	defer cancel()
	page, err := o.server.config.Audit.List(ctx, query)
	if errors.Is(err, audit.ErrBadToken) {
		err = invalid("page_token", "is not one that this listing has given")
	}
	if err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	response := &adminv1.ListAuditResponse{NextPageToken: page.Next}
	for i := range page.Records {
		response.Records = append(response.Records, auditRecordOf(&page.Records[i]))
	}
	return response, nil
}

// auditQuery checks the request of a listing.
func auditQuery(r *adminv1.ListAuditRequest) (audit.Query, error) {
	if err := understood(r); err != nil {
		return audit.Query{}, err
	}
	c := &check{}
	query := audit.Query{
		By: r.GetActorContains(), Action: r.GetActionContains(), Limit: c.pageSize(r.GetPageSize()),
		Token: r.GetPageToken(),
	}
	var known bool
	if query.Result, known = auditResults[r.GetResult()]; !known {
		c.fail("result", "is not a result")
	}
	c.words("actor_contains", query.By, maxErrorText)
	c.words("action_contains", query.Action, maxErrorText)
	if age := c.duration("max_age", r.GetMaxAge(), maxAge); age > 0 {
		query.Since = time.Now().Add(-age)
	}
	return query, c.err()
}

// auditResults are the results of actions in the contract.
var auditResults = map[adminv1.AuditResult]audit.Result{
	adminv1.AuditResult_AUDIT_RESULT_UNSPECIFIED: "",
	adminv1.AuditResult_AUDIT_RESULT_BEGUN:       audit.Begun,
	adminv1.AuditResult_AUDIT_RESULT_DONE:        audit.Done,
	adminv1.AuditResult_AUDIT_RESULT_REFUSED:     audit.Refused,
	adminv1.AuditResult_AUDIT_RESULT_FAILED:      audit.Failed,
}

// auditRecordOf is a record of the API. An action without a value there is the method of a refused call.
func auditRecordOf(r *audit.Record) *adminv1.AuditRecord {
	record := &adminv1.AuditRecord{
		Id: r.ID, Time: Moment(r.Time), LastTime: Moment(r.Until), Actor: r.By, Address: r.From,
		IdentityKind: adminv1.IdentityKind(valueOf(adminv1.IdentityKind_value, "IDENTITY_KIND_", string(r.Kind))),
		Channel:      adminv1.AuditChannel(valueOf(adminv1.AuditChannel_value, "AUDIT_CHANNEL_", string(r.Via))),
		Action:       adminv1.AuditAction(valueOf(adminv1.AuditAction_value, "AUDIT_ACTION_", string(r.Action))),
		Producer:     r.Producer, Names: r.Names, Filter: r.Filter, Destinations: r.Destinations,
		Count: r.Count, Reason: r.Reason, Cause: r.Cause, Instance: r.Instance,
		Result:  adminv1.AuditResult(valueOf(adminv1.AuditResult_value, "AUDIT_RESULT_", string(r.Result))),
		Refusal: adminv1.RefusalKind(valueOf(adminv1.RefusalKind_value, "REFUSAL_KIND_", string(r.Refusal))),
	}
	if record.GetAction() == adminv1.AuditAction_AUDIT_ACTION_UNSPECIFIED {
		record.Method = string(r.Action)
	}
	return record
}
