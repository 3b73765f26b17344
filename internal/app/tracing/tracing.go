// Package tracing makes the spans of a coordinator and exports them by OTLP, as the standard environment variables of
// OpenTelemetry say. Where they ask for nothing there is no Tracer, and nothing is done for traces but to pass them on.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes spans. A Tracer is safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	exporter *otlptrace.Exporter
	tracer   trace.Tracer
	logger   *slog.Logger
}

// Wanted says whether the environment asks for spans.
func Wanted() bool {
	exporter := os.Getenv("OTEL_TRACES_EXPORTER")
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || exporter != "" && exporter != "otlp" {
		return false
	}
	return exporter == "otlp" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Open returns a Tracer that exports as the environment says. Spans that cannot be exported are dropped, so nothing
// waits for the exporter. The Tracer must be closed.
func Open(ctx context.Context, version, instance string, logger *slog.Logger) (*Tracer, error) {
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_*: %w", err)
	}
	// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "msghandler"), attribute.String("service.version", version),
		attribute.String("service.instance.id", instance),
	), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Debug("spans were not exported", "cause", err) }))
	return &Tracer{
		provider: provider,
		exporter: exporter,
		logger:   logger,
		tracer:   provider.Tracer("github.com/msghandler/msghandler"),
	}, nil
}

func newExporter(ctx context.Context) (*otlptrace.Exporter, error) {
	protocol := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	switch protocol {
	case "", "grpc":
		return otlptracegrpc.New(ctx)
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	}
	return nil, fmt.Errorf("protocol %q is none of grpc, http/protobuf", protocol)
}

// lastExport bounds the export of the last spans: a stop must not wait for an unavailable collector.
const lastExportTimeout = 2 * time.Second

// Close exports the waiting spans.
func (t *Tracer) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lastExportTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.logger.Warn("the last spans were not exported", "cause", err)
		// The provider leaves its last export under way; the cancel aborts the export.
		_ = t.exporter.Shutdown(ctx)
	}
	return nil
}

// form is how a trace is passed on: W3C Trace Context.
var form propagation.TraceContext

// read parses a traceparent. An invalid text gives an invalid context.
func read(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{"traceparent": traceparent}
	return trace.SpanContextFromContext(form.Extract(context.Background(), carrier))
}

// written is the traceparent of a span.
func written(span trace.Span) string {
	carrier := propagation.MapCarrier{}
	form.Inject(trace.ContextWithSpan(context.Background(), span), carrier)
	return carrier["traceparent"]
}

// short is the last part of a gRPC method's name.
func short(method string) string { return method[strings.LastIndexByte(method, '/')+1:] }
