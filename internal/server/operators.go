package server

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// operators is AdminService.
type operators struct {
	adminv1.UnimplementedAdminServiceServer
	server *Server
}

const (
	// defaultPage is the size of a page when the request does not say.
	defaultPage = 100
	// maxScan is about how many messages are looked at for one page. More would delay producers' calls.
	maxScan = 5000
	// maxSearch is about how long a search for a page takes, so that under load a page takes half a second at most.
	maxSearch = 250 * time.Millisecond
	// maxAge: a larger value is most likely a wrong unit.
	maxAge = 10 * 365 * 24 * time.Hour
	// maxErrorText is how many characters a search in last errors may have.
	maxErrorText = 200
)

// GetMessage implements AdminService.
func (o *operators) GetMessage(
	ctx context.Context, r *adminv1.GetMessageRequest,
) (*adminv1.GetMessageResponse, error) {
	const call = "GetMessage"
	name := halfmsg.Name{Producer: r.GetProducer(), ID: r.GetId()}
	c := &check{}
	c.name(name)
	if err := c.err(); err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	ctx, cancel := o.server.withStoreTimeout(ctx)
	defer cancel()
	record, err := o.server.config.Inspector.Get(ctx, name)
	if err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	answer := o.server.recordFor(access.From(ctx), &record)
	answer.Events = eventsOf(&record)
	return &adminv1.GetMessageResponse{Record: answer}, nil
}

// ListMessages implements AdminService.
func (o *operators) ListMessages(
	ctx context.Context, r *adminv1.ListMessagesRequest,
) (*adminv1.ListMessagesResponse, error) {
	const call = "ListMessages"
	if err := understood(r); err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	c := &check{}
	query := o.server.query(c, "filter.", r.GetFilter(), halfmsg.Unfinished())
	query.Cursor = c.cursor(r.GetPageToken(), unfinished(query))
	query.Limit, query.Scan, query.Patience = c.pageSize(r.GetPageSize()), maxScan, maxSearch
	if err := c.err(); err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	ctx, cancel := o.server.withStoreTimeout(ctx)
	defer cancel()
	page, err := o.server.config.Inspector.List(ctx, query)
	if err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	response := &adminv1.ListMessagesResponse{NextPageToken: writeToken(page.Next, unfinished(query))}
	for i := range page.Records {
		response.Records = append(response.Records, o.server.recordFor(access.From(ctx), &page.Records[i]))
	}
	return response, nil
}

// GetStats implements AdminService.
func (o *operators) GetStats(
	ctx context.Context, _ *adminv1.GetStatsRequest,
) (*adminv1.GetStatsResponse, error) {
	ctx, cancel := o.server.withStoreTimeout(ctx)
	defer cancel()
	stats, err := o.server.config.Inspector.Stats(ctx)
	if err != nil {
		return nil, o.server.fail(ctx, "GetStats", err, halfmsg.None)
	}
	response := &adminv1.GetStatsResponse{
		Findings: o.server.config.Findings(ctx), Brokers: o.server.config.BrokerStats(),
		Coordinators: o.server.config.Coordinators(),
	}
	o.server.config.AddSums(response)
	for _, stat := range stats {
		response.States = append(response.States, &adminv1.StateStats{
			State: msghandlerv1.State(stat.State), Count: stat.Count, OldestCreateTime: Moment(stat.OldestAt),
			FirstDueTime: Moment(stat.FirstDueAt),
		})
	}
	return response, nil
}

// GetConfiguration implements AdminService.
func (o *operators) GetConfiguration(
	context.Context, *adminv1.GetConfigurationRequest,
) (*adminv1.GetConfigurationResponse, error) {
	return o.server.config.Configuration(), nil
}

// withStoreTimeout bounds one call to the store from within a handler.
func (s *Server) withStoreTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, storeTimeout)
}

// understood refuses a request with fields that this version does not know. A newer caller may have narrowed the filter
// with them. To ignore them would list, count or discard more messages than meant.
func understood(r proto.Message) error {
	if hasUnknown(r.ProtoReflect(), maxNesting) {
		return errUnknownFields
	}
	return nil
}

// maxNesting is deeper than any request of AdminService.
const maxNesting = 8

// hasUnknown looks into filters and selections too.
func hasUnknown(m protoreflect.Message, depth int) bool {
	unknown := depth == 0 || len(m.GetUnknown()) > 0
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case unknown || field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				unknown = unknown || hasUnknown(value.List().Get(i).Message(), depth-1)
			}
		default:
			unknown = hasUnknown(value.Message(), depth-1)
		}
		return !unknown
	})
	return unknown
}

// hiddenHeaders is why no filter may name a header. Callers who may not see headers are refused earlier: see permits.
const hiddenHeaders = "must be empty: http.bodies is false, and a filter would tell what headers hold"

// query checks a filter at a path of a request. The call works on messages in the states.
func (s *Server) query(c *check, path string, f *adminv1.MessageFilter, states []halfmsg.State) halfmsg.Query {
	defer c.enter(path)()
	if s.config.HideBodies && f.GetHeader() != "" {
		c.fail("header", hiddenHeaders)
	}
	query := halfmsg.Query{
		State: stateOf(f.GetState()), Producer: f.GetProducer(), Exchange: f.GetExchange(), Error: f.GetErrorContains(),
		Broker: f.GetBroker(), IDPrefix: f.GetIdPrefix(), RoutingKey: f.GetRoutingKey(), Cause: f.GetCause(),
		MinAge: c.duration("min_age", f.GetMinAge(), maxAge),
	}
	c.kept("state", query.State, states)
	if query.Producer != "" {
		c.producer("producer", query.Producer)
	}
	c.shortText("exchange", query.Exchange)
	c.shortText("broker", query.Broker)
	c.shortText("id_prefix", query.IDPrefix)
	c.shortText("routing_key", query.RoutingKey)
	c.words("error_contains", query.Error, maxErrorText)
	c.words("cause", query.Cause, halfmsg.MaxCause)
	query.HeaderName, query.HeaderValue = c.searchedHeader("header", f.GetHeader())
	return query
}

// pageSize checks the size of a page.
func (c *check) pageSize(size int32) int {
	if size < 0 || size > maxItems {
		c.fail("page_size", "must be from 1 to %d, or 0 for %d", maxItems, defaultPage)
	}
	return cmp.Or(int(size), defaultPage)
}

// words checks a text to look for in last errors.
func (c *check) words(field, text string, most int) {
	if n := utf8.RuneCountInString(text); n > most {
		c.fail(field, "has %d characters, more than %d", n, most)
	}
}

// searchedHeader reads NAME=VALUE, or nothing.
func (c *check) searchedHeader(field, text string) (name, value string) {
	if text == "" {
		return "", ""
	}
	name, value, found := strings.Cut(text, "=")
	if !found || name == "" {
		c.fail(field, "must be NAME=VALUE")
	}
	if len(text) > maxHeaderBytes {
		c.fail(field, "is %d bytes long, more than %d", len(text), maxHeaderBytes)
	}
	return name, value
}

// kept checks that a call can work on messages in a state.
func (c *check) kept(field string, state halfmsg.State, allowed []halfmsg.State) {
	if !slices.Contains(allowed, state) {
		c.fail(field, "must be one of %s", listed(allowed))
	}
}

// listed names states as the contract does.
func listed(states []halfmsg.State) string {
	text := ""
	for i, state := range states {
		if i > 0 {
			text += ", "
		}
		text += msghandlerv1.State(state).String()
	}
	return text
}

// stateOf is the domain's state. A value out of range becomes None, which no call works on.
func stateOf(state msghandlerv1.State) halfmsg.State {
	if state < 0 || int(state) >= len(halfmsg.States()) {
		return halfmsg.None
	}
	return halfmsg.State(state) //nolint:gosec // in range, see above
}

// recordFor is a record as its caller may see it: bodies and headers are for readers, or hidden from all.
func (s *Server) recordFor(caller access.Identity, r *halfmsg.Record) *adminv1.MessageRecord {
	record := recordOf(r)
	if s.hides(caller) {
		record.Message.Body, record.Message.Headers = nil, nil
	}
	return record
}

func recordOf(r *halfmsg.Record) *adminv1.MessageRecord {
	message := &msghandlerv1.Message{
		Id: r.ID, Broker: r.Broker, Exchange: r.Exchange, RoutingKey: r.RoutingKey, Body: r.Body,
		ContentType: r.ContentType, Headers: r.Headers, OrderingKey: r.OrderingKey,
	}
	if r.Delay > 0 {
		message.Delay = durationpb.New(r.Delay)
	}
	return &adminv1.MessageRecord{
		Producer: r.Producer, Message: message, State: msghandlerv1.State(r.State), CallbackTarget: r.CallbackTarget,
		MarkerStore: r.MarkerStore,
		CreateTime:  Moment(r.CreatedAt), UpdateTime: Moment(r.UpdatedAt), DueTime: Moment(r.DueAt),
		ConfirmAttempts: count32(r.ConfirmAttempts), PublishAttempts: count32(r.PublishAttempts),
		DeleteAttempts: count32(r.DeleteAttempts), LastError: cut(r.LastError),
		LeaseOwner: r.LeaseOwner, LeaseEndTime: Moment(r.LeaseUntil),
		LastErrorTime: Moment(r.ErrorAt), Parked: r.Parked, HeldBy: r.HeldBy,
	}
}

// eventsOf lists the events of a message's timeline.
func eventsOf(r *halfmsg.Record) (events []*adminv1.Event) {
	for _, h := range r.Story() {
		events = append(events, &adminv1.Event{
			Kind:      adminv1.EventKind(valueOf(adminv1.EventKind_value, "EVENT_KIND_", h.What)),
			FirstTime: Moment(h.First), LastTime: Moment(h.Last), Count: count32(h.Times),
			Actor: cut(h.By), Cause: cut(h.Cause),
		})
	}
	return events
}

// valueOf is the value of an enum of the API for a word, such as AUDIT_ACTION_RETRY for "retry"; 0 for a word without a
// value.
func valueOf(values map[string]int32, prefix, word string) int32 {
	return values[prefix+strings.ToUpper(word)]
}

// Moment is a time of the API, unset for the zero time.
func Moment(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(halfmsg.Tellable(t))
}

func count32(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }
