package app_test

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// gathered keeps the spans exported over HTTP.
type gathered struct {
	mu     sync.Mutex
	byName map[string]*spans.Span
}

func (g *gathered) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a truncated body fails below
	var request collector.ExportTraceServiceRequest
	if proto.Unmarshal(body, &request) != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				g.byName[span.GetName()] = span
			}
		}
	}
}

func (g *gathered) span(t *testing.T, name string) (span *spans.Span) {
	t.Helper()
	servers.Eventually(t, 20*time.Second, "span "+name+" is exported", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		span = g.byName[name]
		return span != nil
	})
	return span
}

// The trace context of a producer.
const (
	broughtTrace = "0af7651916cd43dd8448eb211c80319c"
	broughtSpan  = "b7ad6b7169203331"
	brought      = "00-" + broughtTrace + "-" + broughtSpan + "-01"
)

// A trace leads from the producer through SendHalfMessage and the publish to the consumer; Confirm is linked to the
// trace.
func TestTraceLeadsFromProducerToConsumer(t *testing.T) {
	g := &gathered{byName: map[string]*spans.Span{}}
	otlp := httptest.NewServer(g)
	defer otlp.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	r := start(t, settings())
	r.awaitReady(t)
	p := startOrders(t)
	deliveries := r.queue(t, "paid")
	client := r.producers(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", brought)
	if _, err := client.SendHalfMessage(ctx, half(p, "1")); err != nil {
		t.Fatal(err)
	}
	// A Submit may have no trace context, or a different trace.
	submit := &msghandlerv1.SubmitRequest{Producer: "orders", Id: "1", Wait: msghandlerv1.Wait_WAIT_DONE}
	if _, err := client.Submit(t.Context(), submit); err != nil {
		t.Fatal(err)
	}
	consumed, _ := (<-deliveries).Headers["traceparent"].(string)

	sent, published, confirmed := g.span(t, "SendHalfMessage"), g.span(t, "publish"), g.span(t, "Confirm")
	if id := hex.EncodeToString(sent.GetTraceId()); id != broughtTrace ||
		hex.EncodeToString(sent.GetParentSpanId()) != broughtSpan {
		t.Errorf("SendHalfMessage belongs to trace %s", id)
	}
	if hex.EncodeToString(published.GetTraceId()) != broughtTrace ||
		string(published.GetParentSpanId()) != string(sent.GetSpanId()) {
		t.Error("the publishing does not follow from SendHalfMessage")
	}
	if want := "00-" + broughtTrace + "-" + hex.EncodeToString(published.GetSpanId()) + "-01"; consumed != want {
		t.Errorf("the consumer gets %q, want %q", consumed, want)
	}
	if links := confirmed.GetLinks(); len(links) != 1 || string(links[0].GetSpanId()) != string(sent.GetSpanId()) {
		t.Errorf("Confirm is linked to %v", links)
	}
	if p.trace() != "00-"+hex.EncodeToString(confirmed.GetTraceId())+"-"+hex.EncodeToString(confirmed.GetSpanId())+"-01" {
		t.Errorf("the producer is asked with trace %q", p.trace())
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.HTTPAddr()+"/metrics", nil)
	must.Succeed(t, err)
	request.Header.Set("Accept", "application/openmetrics-text")
	servers.Eventually(t, 10*time.Second, "the trace is an exemplar", func() bool {
		answer, err := http.DefaultClient.Do(request)
		must.Succeed(t, err)
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return strings.Contains(string(body), `# {trace_id="`+broughtTrace+`"}`)
	})
	t.Logf("producer %s, SendHalfMessage %x, publish %x, consumer %s; Confirm %x linked", brought, sent.GetSpanId(),
		published.GetSpanId(), consumed, confirmed.GetSpanId())
}

// Without a collector the producer's trace context reaches the consumer unchanged.
func TestTraceIsPassedOnWithoutCollector(t *testing.T) {
	r := start(t, settings())
	r.awaitReady(t)
	p := startOrders(t)
	deliveries := r.queue(t, "paid")
	client := r.producers(t)
	for id, trace := range map[string]string{"1": brought, "2": ""} {
		ctx := t.Context()
		if trace != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", trace)
		}
		if _, err := client.SendHalfMessage(ctx, half(p, id)); err != nil {
			t.Fatal(err)
		}
		// A repeated call is another call of another span, and the message is the same.
		again := metadata.AppendToOutgoingContext(t.Context(), "traceparent", strings.Replace(brought, "b7", "c8", 1))
		if _, err := client.SendHalfMessage(again, half(p, id)); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Submit(t.Context(), &msghandlerv1.SubmitRequest{Producer: "orders", Id: id}); err != nil {
			t.Fatal(err)
		}
		if got, _ := (<-deliveries).Headers["traceparent"].(string); got != trace {
			t.Errorf("message %s arrives with trace %q, want %q", id, got, trace)
		}
	}
}

// An unavailable collector delays neither messages nor a stop.
func TestAnUnavailableCollectorDelaysNothing(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+nobodyAt(t))
	r := start(t, settings())
	r.awaitReady(t)
	p := startOrders(t)
	r.queue(t, "paid")
	client := r.producers(t)
	deliver(t, client, halves(p, "orders", 0, 10))
	began := time.Now()
	if err := r.Stop(context.Background()); err != nil || time.Since(began) > 20*time.Second {
		t.Errorf("the stop took %v: %v", time.Since(began), err)
	}
}
