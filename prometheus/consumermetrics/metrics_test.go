package consumermetrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/prometheus/consumermetrics"
)

func TestDeliveriesAreCountedByResult(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	o, err := consumermetrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range []consumer.Result{
		consumer.Effect, consumer.Effect, consumer.Duplicate, consumer.Retried, consumer.Dead,
	} {
		o.Begun("payments")
		o.Ended("payments", result, time.Second)
	}
	o.Begun("payments")
	o.Depth("payments", 7)
	o.DeadLetters("payments", 2)
	got := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	for name, want := range map[string]float64{
		"msghandler_consumer_deliveries_total payments effect":    2,
		"msghandler_consumer_deliveries_total payments duplicate": 1,
		"msghandler_consumer_deliveries_total payments retried":   1, "msghandler_consumer_deliveries_total payments dead": 1,
		"msghandler_consumer_queue_messages payments": 7, "msghandler_consumer_dead_letters payments": 2,
		"msghandler_consumer_in_flight payments": 1, "msghandler_consumer_handler_seconds payments": 5,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if _, err := consumermetrics.New(registry); err == nil {
		t.Error("registered twice")
	}
}
