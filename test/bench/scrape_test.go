package bench

import (
	"bufio"
	"errors"
	"io"
	"math"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
)

// series are the metrics of a coordinator by name.
type series map[string]*dto.MetricFamily

// scrape reads a coordinator's metrics in the form that has native histograms, which are within 10 % of the truth.
func (c *coordinator) scrape() series {
	s := c.s
	request, err := http.NewRequest(http.MethodGet, c.console()+"/metrics", nil)
	s.must(err)
	request.Header.Set("Accept",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	response, err := http.DefaultClient.Do(request)
	s.must(err)
	defer response.Body.Close()
	all, body := series{}, bufio.NewReader(response.Body)
	for {
		family := &dto.MetricFamily{}
		err := protodelim.UnmarshalFrom(body, family)
		if errors.Is(err, io.EOF) {
			return all
		}
		s.must(err)
		all[family.GetName()] = family
	}
}

// times are p50 and p99 of a histogram of seconds, in milliseconds. label is the value of its only label, if there is
// a label.
func (all series) times(name, label string) figure {
	for _, m := range all[name].GetMetric() {
		if label == "" || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label {
			return figure{p50: 1000 * quantile(m.GetHistogram(), 0.5), p99: 1000 * quantile(m.GetHistogram(), 0.99)}
		}
	}
	return figure{}
}

// quantile is the upper end of the native bucket in which a share of all observations is reached.
func quantile(h *dto.Histogram, share float64) float64 {
	wanted := share * float64(h.GetSampleCount())
	seen, count := float64(h.GetZeroCount()), int64(0)
	index, next := int32(0), 0
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += h.GetPositiveDelta()[next] // each bucket is encoded by its difference from the bucket before
			seen += float64(count)
			if seen >= wanted {
				return math.Exp2(float64(index) * math.Exp2(-float64(h.GetSchema())))
			}
			index++
			next++
		}
	}
	return 0
}
