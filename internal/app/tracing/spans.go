package tracing

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Serve is a server interceptor that makes a span for each call, in the trace of the caller. Later interceptors and
// handlers see the span's traceparent, which is stored with the message.
func (t *Tracer) Serve(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if brought := md.Get("traceparent"); len(brought) == 1 {
		ctx = trace.ContextWithRemoteSpanContext(ctx, read(brought[0]))
	}
	ctx, span := t.tracer.Start(ctx, short(info.FullMethod),
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(about(request)...))
	defer span.End()
	md = md.Copy()
	md.Set("traceparent", written(span))
	response, err := next(metadata.NewIncomingContext(ctx, md), request)
	if err != nil {
		span.SetStatus(codes.Error, status.Code(err).String())
	}
	return response, err
}

// about names the message of a call about a single message.
func about(request any) (attributes []attribute.KeyValue) {
	attributes = append(attributes, attribute.String("rpc.system", "grpc"))
	if r, ok := request.(interface{ GetProducer() string }); ok {
		attributes = append(attributes, attribute.String("msghandler.producer", r.GetProducer()))
	}
	if r, ok := request.(interface{ GetMessage() *msghandlerv1.Message }); ok {
		attributes = append(attributes, attribute.String("messaging.message.id", r.GetMessage().GetId()))
	}
	if r, ok := request.(interface{ GetId() string }); ok {
		attributes = append(attributes, attribute.String("messaging.message.id", r.GetId()))
	}
	return attributes
}

// Confirm begins a span for a Confirm call. The call may concern messages of many traces that began hours ago, so the
// span is linked to them. The producer gets the span's traceparent. Without a sampled trace there is no span.
func (t *Tracer) Confirm(
	ctx context.Context, producer string, traces []string,
) (context.Context, func(err error)) {
	var links []trace.Link
	for _, traceparent := range traces {
		if of := read(traceparent); of.IsSampled() {
			links = append(links, trace.Link{SpanContext: of})
		}
	}
	if len(links) == 0 {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(ctx, "Confirm", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithLinks(links...), trace.WithAttributes(
			attribute.String("msghandler.producer", producer), attribute.Int("messaging.batch.message_count", len(traces)),
		))
	ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", written(span))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "the producer was not reached")
		}
		span.End()
	}
}

// Publisher returns a publisher that makes a span for each message of a sampled trace. The consumer gets the span's
// traceparent, so the consumer's spans belong to the producer's trace. system is the kind of the broker, such as
// rabbitmq.
func (t *Tracer) Publisher(inner halfmsg.Publisher, system string) halfmsg.Publisher {
	return &publisher{inner, t, system}
}

type publisher struct {
	halfmsg.Publisher
	spans  *Tracer
	system string
}

// Publish implements halfmsg.Publisher.
func (p *publisher) Publish(
	ctx context.Context, batch []halfmsg.Publishing, answered func(places []int, results []halfmsg.PublishResult),
) {
	batch = slices.Clone(batch)
	spans := make([]trace.Span, len(batch))
	for i := range batch {
		spans[i] = p.begin(&batch[i])
	}
	p.Publisher.Publish(ctx, batch, func(places []int, results []halfmsg.PublishResult) {
		for n, i := range places {
			end(spans[i], results[n].Outcome)
			batch[i].Body = nil
		}
		answered(places, results)
	})
}

// end ends the span of a message, if any.
func end(span trace.Span, outcome halfmsg.Outcome) {
	if span == nil {
		return
	}
	span.SetAttributes(attribute.String("msghandler.outcome", outcome.String()))
	if outcome != halfmsg.Acked {
		span.SetStatus(codes.Error, outcome.String())
	}
	span.End()
}

// begin begins the span of a message and gives the message its traceparent; nil where its trace is not sampled.
func (p *publisher) begin(m *halfmsg.Publishing) trace.Span {
	of := read(m.Trace)
	if !of.IsSampled() {
		return nil
	}
	_, span := p.spans.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), of), "publish",
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
			attribute.String("messaging.system", p.system), attribute.String("messaging.destination.name", m.Exchange),
			attribute.String("messaging."+p.system+".destination.routing_key", m.RoutingKey),
			attribute.String("messaging.message.id", m.Name.ID), attribute.String("msghandler.producer", m.Name.Producer),
			attribute.Int("msghandler.attempt", m.Attempt),
		))
	m.Trace = written(span)
	return span
}
