package cli

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/msghandler/msghandler/internal/app/doctor"
)

// The elements of JUnit XML, as CI systems read them. Their order is that of the schema of Jenkins.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name      string      `xml:"name,attr"`
		Tests     int         `xml:"tests,attr"`
		Failures  int         `xml:"failures,attr"`
		Errors    int         `xml:"errors,attr"`
		Skipped   int         `xml:"skipped,attr"`
		Time      string      `xml:"time,attr"`
		Timestamp string      `xml:"timestamp,attr"`
		Hostname  string      `xml:"hostname,attr"`
		Cases     []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Classname string         `xml:"classname,attr"`
		Name      string         `xml:"name,attr"`
		Time      string         `xml:"time,attr"`
		Errors    []junitProblem `xml:"error"`
		Failures  []junitProblem `xml:"failure"`
		Out       string         `xml:"system-out,omitempty"`
	}
	junitProblem struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// junitReport is a report of findings with a test case for each check. A finding of the least severity or above is a
// failure, and an error where the producer was not reached.
func junitReport(producer string, found []doctor.Finding, least doctor.Severity, began time.Time) []byte {
	host, _ := os.Hostname() // empty where the system does not know it
	suite := junitSuite{
		Name: "msghandler verify-producer " + producer, Time: seconds(time.Since(began)),
		Timestamp: began.UTC().Format("2006-01-02T15:04:05"), Hostname: host,
	}
	unreached := doctor.Unreached(found)
	for _, f := range found {
		at := suite.caseOf(producer, f)
		problem := junitProblem{Type: f.Name, Message: xmlText(f.What), Text: xmlText(textOf(f))}
		switch {
		case f.Severity < least:
			at.Out += xmlText(textOf(f)) + "\n"
		case unreached:
			at.Errors = append(at.Errors, problem)
			suite.Errors = 1
		default:
			if len(at.Failures) == 0 {
				suite.Failures++
			}
			at.Failures = append(at.Failures, problem)
		}
	}
	suite.Tests = len(suite.Cases)
	all := junitSuites{
		Name: "msghandler", Tests: suite.Tests, Failures: suite.Failures, Errors: suite.Errors, Time: suite.Time,
		Suites: []junitSuite{suite},
	}
	out := bytes.NewBufferString(xml.Header)
	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")
	_ = encoder.Encode(all) // a buffer takes everything, and these types can be encoded
	return append(out.Bytes(), '\n')
}

// caseOf returns the test case of a finding's check; findings of one check follow each other.
func (s *junitSuite) caseOf(producer string, f doctor.Finding) *junitCase {
	name := f.Check
	if name == "" {
		name = f.Area
	}
	if n := len(s.Cases); n == 0 || s.Cases[n-1].Name != name {
		s.Cases = append(s.Cases, junitCase{
			Classname: "msghandler.verify-producer." + producer, Name: name, Time: seconds(f.Took),
		})
	}
	return &s.Cases[len(s.Cases)-1]
}

// textOf is a finding in one or more lines.
func textOf(f doctor.Finding) string {
	if f.Severity == doctor.OK {
		return f.What
	}
	return fmt.Sprintf("%s: %s\nwhy: %s\ndo: %s\nname: %s", f.Severity, f.What, f.Why, f.Remedy, f.Name)
}

// seconds is a duration in the form of JUnit.
func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

// xmlText replaces characters that do not belong into a report: a producer's words may hold any.
func xmlText(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
