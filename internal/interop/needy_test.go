//go:build linux

package interop

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// leftOut are cases that need a feature that an engine may lack. A name that ends with a slash
// means every case of that file.
type leftOut struct {
	feature engine.Feature // an engine without it leaves them out, or
	engine  engine.Name    // this one does
	why     string         // the reason why they need it
	js      []string       // the cases of the one SDK
	python  []string       // and of the other
}

// needy are the cases that need more than every engine has. An engine runs the cases whose
// feature it promises.
var needy = []leftOut{
	{feature: engine.TwoUsers, why: "they ask who runs a command or owns a file", js: []string{
		"commands/run returns output and status", "commands/user, cwd and envs", "files/a file is overwritten and belongs to its user",
		"templates/a template of a Dockerfile", "templates/a template with every step", "templates/a template with packages and a repository",
		"templates/templates from images", "urls/an upload URL is enough",
	}, python: []string{
		"commands/run_returns_output_and_status", "commands/user_cwd_and_envs", "files/a_file_is_overwritten_and_belongs_to_its_user",
		"templates/a_template_of_a_Dockerfile", "templates/a_template_with_every_step", "templates/a_template_with_packages_and_a_repository",
		"templates/sandboxes_of_images", "templates/templates_from_images", "urls/an_upload_url_is_enough",
	}},
	{
		feature: engine.DiskLimit, why: "they ask how large the disk is",
		js:     []string{"metrics/metrics"},
		python: []string{"metrics/metrics"},
	},
	{
		feature: engine.Volumes, why: "their sandboxes share one",
		js:     []string{"volumes/sandboxes share it"},
		python: []string{"volumes/sandboxes_share_it"},
	},
	{
		feature: engine.HeaderRules, why: "their rules put headers into requests",
		js:     []string{"secrets/rules put them into headers"},
		python: []string{"secrets/rules_put_them_into_headers"},
	},
	{
		feature: engine.HostServices, why: "their sandboxes reach one",
		python: []string{"network/a_service_of_the_machine_has_a_name"},
	},
	{
		feature: engine.Images, why: "their templates are from images",
		js:     []string{"templates/a template of a Dockerfile from an image"},
		python: []string{"templates/a_template_of_a_dockerfile_from_an_image"},
	},
	{
		feature: engine.Commands, why: "they run commands",
		js: []string{
			"commands/", "git/", "mcp/", "network/", "templates/", "files/information about a file, a directory and a link",
			"files/list has a depth", "files/names with anything in them", "lifecycle/a request has its own timeout",
			"lifecycle/after kill everything says so", "lifecycle/environment and template are those asked for",
			"pause/a pause cuts what streams", "pause/a pause keeps processes, variables and files",
			"pause/a pause of the files ends processes", "pause/a request to a port resumes", "pause/a resume may forget the memory",
			"pause/a timeout may keep files alone", "pause/traffic resumes what its time paused",
			"pause/without auto-resume, connect resumes", "snapshots/a snapshot has the files of its moment",
			"snapshots/forks have the files and go their own way",
			"unsupported/building templates with the logins of other services", "urls/a port is reached by its host name",
			"urls/a sandbox without public traffic asks for its token", "volumes/sandboxes share it",
			"watch/each change is an event",
		},
		python: []string{
			"commands/", "git/", "mcp/", "network/", "templates/", "files/information_about_a_file_a_directory_and_a_link",
			"files/list_has_a_depth", "files/names_with_anything_in_them", "lifecycle/after_kill_everything_says_so",
			"lifecycle/environment_and_template_are_those_asked_for", "pause/a_pause_cuts_what_streams",
			"pause/a_pause_keeps_processes_variables_and_files", "pause/a_pause_of_the_files_ends_processes",
			"pause/a_request_to_a_port_resumes", "pause/a_resume_may_forget_the_memory", "pause/a_timeout_may_keep_files_alone",
			"pause/traffic_resumes_what_its_time_paused", "pause/without_auto_resume_connect_resumes",
			"snapshots/a_snapshot_has_the_files_of_its_moment", "snapshots/forks_have_the_files_and_go_their_own_way",
			"unsupported/building_templates_with_the_logins_of_other_services", "urls/a_port_is_reached_by_its_host_name",
			"urls/a_sandbox_without_public_traffic_asks_for_its_token", "volumes/sandboxes_share_it",
			"watch/each_change_is_an_event",
		},
	},
	{
		feature: engine.Terminals, why: "they open terminals",
		js: []string{"pty/"}, python: []string{"pty/"},
	},
	{
		engine: engine.Docker, why: "the image says which files a login shell reads, and theirs reads no .bashrc",
		js:     []string{"commands/.bashrc is read"},
		python: []string{"commands/bashrc_is_read"},
	},
	{
		engine: engine.Wasm, why: "they use IPython, or libraries that Pyodide does not bring",
		js: []string{
			"charts/", "code/a picture that is shown, saved or the value", "code/every form of a result",
			"code/output, value and state", "code/tables and figures",
		},
		python: []string{
			"charts/", "code/a_dead_kernel_is_replaced", "code/output_value_and_state", "code/variables_and_code_of_any_form",
			"results/every_form_of_a_result", "results/pictures", "results/tables_and_figures",
			"results/the_other_forms_of_a_result", "results/values_that_are_not_json",
			"results/what_only_changes_a_display_is_no_result",
		},
	},
}

// TestNeedy checks that each reason for leaving out a case is a feature of the table, or an
// engine.
func TestNeedy(t *testing.T) {
	t.Parallel()
	for _, one := range needy {
		if slices.Contains(engine.Features, one.feature) == slices.Contains(engine.Names, one.engine) || one.why == "" {
			t.Errorf("%q and %q, because %q, are not one feature or one engine with a reason", one.feature, one.engine, one.why)
		}
	}
}

// leaveOut returns the variable that makes a client leave out the cases that need features
// that an engine lacks, and skips them by name. missing has the reason for each missing
// feature.
func leaveOut(t *testing.T, from engine.Name, missing map[engine.Feature]string, of func(leftOut) []string) []string {
	t.Helper()
	names := []string{}
	for _, one := range needy {
		if one.engine != from && missing[one.feature] == "" {
			continue
		}
		for _, name := range of(one) {
			names = append(names, name)
			t.Run(name, func(t *testing.T) {
				t.Skipf("%s, which the engine %s lacks: %s", one.why, from, cmp.Or(missing[one.feature], "it is not in the table of promises"))
			})
		}
	}
	list, err := json.Marshal(names)
	must.Do(t, err)
	return []string{"LEFT_OUT=" + string(list)}
}
