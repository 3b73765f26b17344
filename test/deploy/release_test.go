package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The tools of a release are a module of their own, with tests beside them: a service that builds from the released
// modules, the versions of the go.mod files, the changelog, and the unit of the packages. make test-release and
// make test-packages run the tests that need minutes.
func TestReleaseTools(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "test", "-count=1", "./modules", "./changelog", "./unit")
	cmd.Dir = filepath.Join(root, "internal", "release")
	cmd.Env = append(os.Environ(), "GOWORK=off") // the module is not in go.work
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPackageScriptsAreShell(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob(filepath.Join(root, "deploy", "packages", "*", "*"))
	if err != nil || len(scripts) != 6 {
		t.Fatalf("the scripts are %q (%v)", scripts, err)
	}
	for _, script := range scripts {
		if out, err := exec.Command("sh", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// A workflow takes actions by their commit, because a tag can be moved, and runs targets that there are.
func TestWorkflowsArePinned(t *testing.T) {
	t.Parallel()
	workflows, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yml"))
	if err != nil || len(workflows) < 3 {
		t.Fatalf("the workflows are %q (%v)", workflows, err)
	}
	makefile := read(t, "Makefile")
	pinned := regexp.MustCompile(`@[0-9a-f]{40}$`)
	for _, path := range workflows {
		text := read(t, filepath.Join(".github", "workflows", filepath.Base(path)))
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Strategy struct{ Matrix struct{ Target []string } }
				Steps    []struct{ Uses, Run string }
			}
		}
		if err := yaml.Unmarshal([]byte(text), &workflow); err != nil {
			t.Fatal(err)
		}
		if len(workflow.Permissions) == 0 {
			t.Errorf("%s has the rights of the repository's default", filepath.Base(path))
		}
		for name, job := range workflow.Jobs {
			targets := job.Strategy.Matrix.Target
			for _, step := range job.Steps {
				if step.Uses != "" && !pinned.MatchString(step.Uses) {
					t.Errorf("job %s takes %s, which may be moved", name, step.Uses)
				}
				for _, found := range regexp.MustCompile(`\bmake ([a-z-]+)`).FindAllStringSubmatch(step.Run, -1) {
					targets = append(targets, found[1])
				}
			}
			for _, target := range targets {
				if !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("job %s runs make %s, and there is no such target", name, target)
				}
			}
		}
	}
}
