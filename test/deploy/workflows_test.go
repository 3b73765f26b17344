package deploy

import (
	"maps"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// workflow is a file of .github/workflows.
type workflow struct {
	On          map[string]any
	Permissions map[string]string
	Jobs        map[string]job
}

type job struct {
	Uses           string
	Needs          names
	Permissions    map[string]string
	Container      struct{ Image string }
	TimeoutMinutes int `yaml:"timeout-minutes"`
	Strategy       struct{ Matrix struct{ Target []string } }
	Steps          []step
}

type step struct {
	Uses, Run string
	With      map[string]string
}

// names is a list, or a name alone.
type names []string

// UnmarshalYAML reads both forms.
func (n *names) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*n = names{node.Value}
		return nil
	}
	return node.Decode((*[]string)(n))
}

// workflows are all workflows, by their names.
func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	found := map[string]workflow{}
	for _, name := range tracked(t, ".github/workflows/*") {
		var w workflow
		if err := yaml.Unmarshal([]byte(read(t, name)), &w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found[strings.TrimSuffix(path.Base(name), ".yml")] = w
	}
	return found
}

// tracked are the files of the repository whose paths match.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	args := []string{"ls-files", "--cached", "--others", "--exclude-standard"}
	cmd := exec.Command("git", append(args, patterns...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil || len(out) == 0 {
		t.Fatalf("git ls-files %v: %q, %v", patterns, out, err)
	}
	return strings.Fields(string(out))
}

var (
	atCommit = regexp.MustCompile(`@[0-9a-f]{40}$`)
	atDigest = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)
)

// A tag of an action or an image can be moved to other content; a commit and a digest cannot.
func TestActionsAndImagesArePinned(t *testing.T) {
	t.Parallel()
	for file, w := range workflows(t) {
		for name, job := range w.Jobs {
			if job.Container.Image != "" && !atDigest.MatchString(job.Container.Image) {
				t.Errorf("%s: job %s runs in %s, without a digest", file, name, job.Container.Image)
			}
			for _, step := range append(job.Steps, step{Uses: job.Uses}) {
				if step.Uses != "" && !atCommit.MatchString(step.Uses) && !strings.HasPrefix(step.Uses, "./") {
					t.Errorf("%s: job %s takes %s, which may be moved", file, name, step.Uses)
				}
				if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != "false" {
					t.Errorf("%s: job %s leaves its token in the checkout", file, name)
				}
			}
		}
	}
	image := regexp.MustCompile(`(?m)^\s*(?:FROM|image:) +"?([^\s"]+)`)
	for _, file := range tracked(t, "*Dockerfile*", "docker-compose*.yml") {
		for _, found := range image.FindAllStringSubmatch(read(t, file), -1) {
			if name := found[1]; name != "scratch" && name != "msghandler" && !atDigest.MatchString(name) {
				t.Errorf("%s takes %s, without a digest", file, name)
			}
		}
	}
}

// writers are the jobs that may change something outside of their run, and what.
var writers = map[string][]string{
	"build/sign":      {"attestations", "id-token", "packages"},
	"release/build":   {"attestations", "id-token", "packages"}, // handed to the workflow build
	"release/draft":   {"contents"},
	"release/verify":  {"contents"}, // a draft is shown to those who may write only
	"release/publish": {"contents", "packages"},
	"scan/codeql":     {"security-events"},
	"scan/scorecard":  {"id-token", "security-events"},
}

// A workflow gives all its jobs at most the right to read; a job that writes says what.
func TestJobsHaveTheLeastPermissions(t *testing.T) {
	t.Parallel()
	found := map[string][]string{}
	for file, w := range workflows(t) {
		if w.Permissions == nil {
			t.Errorf("%s has the rights of the repository's default", file)
		}
		for right, level := range w.Permissions {
			if level != "read" {
				t.Errorf("%s gives %s: %s to all its jobs", file, right, level)
			}
		}
		for name, job := range w.Jobs {
			if job.Uses == "" && job.TimeoutMinutes == 0 {
				t.Errorf("%s: job %s may run for six hours", file, name)
			}
			for _, right := range slices.Sorted(maps.Keys(job.Permissions)) {
				if job.Permissions[right] == "write" {
					found[file+"/"+name] = append(found[file+"/"+name], right)
				}
			}
		}
	}
	if !maps.EqualFunc(found, writers, slices.Equal) {
		t.Errorf("jobs may write %v, want %v", found, writers)
	}
}

func TestWorkflowsRunExistingTargets(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	for file, w := range workflows(t) {
		for name, job := range w.Jobs {
			targets := job.Strategy.Matrix.Target
			for _, step := range job.Steps {
				for _, found := range regexp.MustCompile(`\bmake ([a-z-]+)`).FindAllStringSubmatch(step.Run, -1) {
					targets = append(targets, found[1])
				}
			}
			for _, target := range targets {
				if !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("%s: job %s runs make %s, and there is no such target", file, name, target)
				}
			}
		}
	}
}

// Nothing is public before a job has downloaded it and has verified signatures and provenance.
func TestReleaseIsVerifiedBeforePublication(t *testing.T) {
	t.Parallel()
	release := workflows(t)["release"]
	var public []string
	for name, job := range release.Jobs {
		if strings.Contains(runs(job), "--draft=false") {
			public = append(public, name)
		}
		if strings.Contains(runs(job), "gh release create") && !strings.Contains(runs(job), "--draft ") {
			t.Errorf("job %s creates a release, and no draft", name)
		}
	}
	if len(public) != 1 || !slices.Contains(release.Jobs[public[0]].Needs, "verify") {
		t.Fatalf("jobs %q make a release public, want a single job after verify", public)
	}
	verify := release.Jobs["verify"]
	if !slices.Contains(verify.Needs, "draft") ||
		!inOrder(runs(verify), "gh release download", "scripts/verify-release.sh") {
		t.Errorf("the job verify does not verify the files of the draft: %s", runs(verify))
	}
	script := read(t, "scripts/verify-release.sh")
	if !inOrder(script, "signature.sh verify", `gh attestation verify "$dir/`, "cosign verify ", `verify "oci://`) {
		t.Error("scripts/verify-release.sh leaves out a signature or a provenance")
	}
	if sign := runs(workflows(t)["build"].Jobs["sign"]); !inOrder(sign, "scripts/signature.sh sign", "cosign sign ") {
		t.Errorf("the job sign leaves out the checksums or the image: %s", sign)
	}
}

// runs are the commands of a job.
func runs(j job) string {
	var all strings.Builder
	for _, s := range j.Steps {
		all.WriteString(s.Run + "\n")
	}
	return all.String()
}

// inOrder says whether a text has all parts, one after the other.
func inOrder(text string, parts ...string) bool {
	for _, part := range parts {
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = after
	}
	return true
}

// pinners are the names of files that pin something, by the ecosystem of Dependabot that updates them.
var pinners = map[string][]string{
	"gomod":          {"go.mod"},
	"npm":            {"package.json"},
	"docker":         {"*Dockerfile*"},
	"docker-compose": {"docker-compose*.yml"},
	"maven":          {"pom.xml"},
	"pip":            {"*requirements*.txt", "pyproject.toml"},
	"cargo":          {"Cargo.toml"},
}

// Each file that pins something gets updates, in one pull request a week for each ecosystem.
func TestEverythingPinnedGetsUpdates(t *testing.T) {
	t.Parallel()
	var config struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directory   string
			Directories []string
			Groups      map[string]any
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/dependabot.yml")), &config); err != nil {
		t.Fatal(err)
	}
	updated := map[string][]string{}
	for _, u := range config.Updates {
		if len(u.Groups) != 1 {
			t.Errorf("the updates of %s come in %d groups, want 1", u.Ecosystem, len(u.Groups))
		}
		directories := u.Directories
		if u.Directory != "" {
			directories = append(directories, u.Directory)
		}
		updated[u.Ecosystem] = slices.Sorted(slices.Values(directories))
	}
	want := map[string][]string{"github-actions": {"/"}}
	for _, file := range tracked(t) {
		for ecosystem, patterns := range pinners {
			if slices.ContainsFunc(patterns, func(pattern string) bool {
				matched, _ := path.Match(pattern, path.Base(file))
				return matched
			}) {
				want[ecosystem] = append(want[ecosystem], path.Join("/", path.Dir(file)))
			}
		}
	}
	for ecosystem, directories := range want {
		slices.Sort(directories)
		if !slices.Equal(updated[ecosystem], directories) {
			t.Errorf(".github/dependabot.yml updates %s in %q, want %q", ecosystem, updated[ecosystem], directories)
		}
	}
}
