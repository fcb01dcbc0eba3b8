package modal

import (
	"strconv"
	"strings"
	"testing"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// pinned are the fields of the wire that berth depends on, by message: number,
// name and kind, a + for a repeated one. Another version of the SDK that says
// something else is a change of the interface, to be looked at.
var pinned = map[protoreflect.ProtoMessage]string{
	&pb.AppGetOrCreateRequest{}:                  "1 app_name string, 2 environment_name string, 3 object_creation_type enum",
	&pb.EnvironmentGetOrCreateRequest{}:          "1 deployment_name string",
	&pb.ImageGetOrCreateRequest{}:                "2 image message, 4 app_id string, 9 builder_version string",
	&pb.ImageGetOrCreateResponse{}:               "1 image_id string, 2 result message",
	&pb.Image{}:                                  "5 base_images message+, 6 dockerfile_commands string+, 12 secret_ids string+, 17 image_registry_config message",
	&pb.ImageJoinStreamingRequest{}:              "1 image_id string, 2 timeout float, 3 last_entry_id string",
	&pb.ImageJoinStreamingResponse{}:             "1 result message, 2 task_logs message+, 3 entry_id string, 4 eof bool",
	&pb.ImagePublishRequest{}:                    "1 image_id string, 2 tag string, 3 environment_name string",
	&pb.ImageGetByTagRequest{}:                   "1 tag string, 2 environment_name string",
	&pb.ImageDeleteRequest{}:                     "1 image_id string",
	&pb.ImageListTagsRequest{}:                   "1 environment_name string, 2 tag_prefix string, 3 max_objects uint32, 4 page_token string, 5 image_id string",
	&pb.ImageNameDeleteRequest{}:                 "1 tag string",
	&pb.ImageListTagsResponse{}:                  "1 items message+, 2 next_page_token string",
	&pb.ImageListTagsItem{}:                      "1 tag string, 2 image_id string, 4 created_at double",
	&pb.EnvironmentListResponse{}:                "2 items message+",
	&pb.EnvironmentListItem{}:                    "1 name string, 4 default bool, 7 max_concurrent_tasks int32, 8 max_concurrent_gpus int32, 9 current_concurrent_tasks int32, 10 current_concurrent_gpus int32, 11 cycle_budget_dollars double, 12 effective_cycle_spend_limit double, 13 current_cycle_usage double, 14 spend_limit_reached bool",
	&pb.TokenInfoGetResponse{}:                   "3 workspace_name string, 7 expires_at message",
	&pb.GenericResult{}:                          "1 status enum, 2 exception string, 3 exitcode int32",
	&pb.SandboxCreateV2Request{}:                 "1 app_id string, 2 definition message, 4 tags message+, 6 secret_sources message+",
	&pb.SandboxCreateV2Response{}:                "1 sandbox_id string, 3 task_id string, 5 command_router_access message",
	&pb.CommandRouterAccess{}:                    "1 jwt string, 2 url string",
	&pb.SandboxTag{}:                             "1 tag_name string, 2 tag_value string",
	&pb.Sandbox{}:                                "1 entrypoint_args string+, 3 image_id string, 5 resources message, 7 timeout_secs uint32, 8 workdir string, 17 scheduler_placement message, 22 network_access message, 30 name string, 33 idle_timeout_secs uint32, 41 experimental_options_v2 message+",
	&pb.Resources{}:                              "2 memory_mb uint32, 3 milli_cpu uint32, 4 gpu_config message, 5 memory_mb_max uint32, 6 ephemeral_disk_mb uint32, 7 milli_cpu_max uint32",
	&pb.GPUConfig{}:                              "2 count uint32, 4 gpu_type string",
	&pb.NetworkAccess{}:                          "1 network_access_type enum, 2 allowed_cidrs string+, 3 allowed_domains string+",
	&pb.SandboxGetFromNameRequest{}:              "1 sandbox_name string, 2 environment_name string, 3 app_name string, 4 include_terminated bool",
	&pb.SandboxGetFromNameResponse{}:             "1 sandbox_id string, 2 metadata message",
	&pb.SandboxHandleMetadata{}:                  "1 result message, 2 app_id string",
	&pb.SandboxListRequest{}:                     "1 app_id string, 2 before_timestamp double, 4 include_finished bool, 5 tags message+",
	&pb.SandboxInfo{}:                            "1 id string, 3 created_at double, 4 task_info message, 6 tags message+, 7 name string",
	&pb.SandboxGetTaskIdRequest{}:                "1 sandbox_id string",
	&pb.SandboxGetTaskIdResponse{}:               "1 task_id string, 2 task_result message",
	&pb.SandboxGetCommandRouterAccessRequest{}:   "1 sandbox_id string, 2 task_id string",
	&pb.SandboxGetCommandRouterAccessResponse{}:  "1 jwt string, 2 url string",
	&pb.TaskGetCommandRouterAccessRequest{}:      "1 task_id string",
	&pb.SandboxWaitRequest{}:                     "1 sandbox_id string, 2 timeout float",
	&pb.SandboxTerminateRequest{}:                "1 sandbox_id string",
	&pb.SandboxGetExitSnapshotRequest{}:          "1 sandbox_id string, 2 timeout float",
	&pb.SandboxGetExitSnapshotResponse{}:         "1 success message, 2 pending message, 3 error message",
	&pb.RPCRetryPolicy{}:                         "1 retry_after_secs float",
	&pb.TaskExecStartRequest{}:                   "1 task_id string, 2 exec_id string, 3 command_args string+, 4 stdout_config enum, 5 stderr_config enum, 6 timeout_secs uint32, 7 workdir string",
	&pb.TaskExecStdioReadRequest{}:               "1 task_id string, 2 exec_id string, 3 offset uint64, 4 file_descriptor enum",
	&pb.TaskExecStdioReadResponse{}:              "1 data bytes",
	&pb.TaskExecStdinWriteRequest{}:              "1 task_id string, 2 exec_id string, 3 offset uint64, 4 data bytes, 5 eof bool",
	&pb.TaskExecStdinWriteStreamRequest{}:        "1 start message, 2 data bytes, 3 end message",
	&pb.TaskExecStdinWriteStreamStart{}:          "1 task_id string, 2 exec_id string, 3 offset uint64",
	&pb.TaskExecStdinStatusResponse{}:            "1 num_bytes_written uint64, 2 closed bool",
	&pb.TaskExecWaitResponse{}:                   "1 code int32, 2 signal int32",
	&pb.TaskExecPollResponse{}:                   "1 code int32, 2 signal int32",
	&pb.TaskSnapshotFilesystemRequest{}:          "1 task_id string, 2 snapshot_id string, 3 ttl_seconds int64",
	&pb.TaskSnapshotFilesystemResponse{}:         "1 image_id string",
	&pb.TaskSetNetworkAccessRequest{}:            "1 task_id string, 2 network_access message",
	&pb.SandboxGetExitSnapshotResponse_Success{}: "1 image_id string",
	&pb.SandboxGetExitSnapshotResponse_Error{}:   "1 error_code enum, 2 message string",
	&pb.ImageRegistryConfig{}:                    "1 registry_auth_type enum, 2 secret_id string",
	&pb.SchedulerPlacement{}:                     "4 regions string+",
}

func TestFieldNumbers(t *testing.T) {
	for m, want := range pinned {
		d := m.ProtoReflect().Descriptor()
		for field := range strings.SplitSeq(want, ", ") {
			words := strings.Fields(field)
			f := d.Fields().ByName(protoreflect.Name(words[1]))
			if f == nil {
				t.Errorf("%s has no field %s", d.FullName(), words[1])
				continue
			}
			kind := f.Kind().String()
			if f.IsList() || f.IsMap() {
				kind += "+"
			}
			if got := strings.Join([]string{strconv.Itoa(int(f.Number())), words[1], kind}, " "); got != field {
				t.Errorf("%s: %s, want %s", d.FullName(), got, field)
			}
		}
	}
	for e, want := range map[protoreflect.Enum]string{
		pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING: "1", pb.NetworkAccess_OPEN: "1", pb.NetworkAccess_BLOCKED: "2", pb.NetworkAccess_ALLOWLIST: "3",
		pb.GenericResult_GENERIC_STATUS_SUCCESS: "1", pb.GenericResult_GENERIC_STATUS_FAILURE: "2", pb.GenericResult_GENERIC_STATUS_TERMINATED: "3",
		pb.GenericResult_GENERIC_STATUS_TIMEOUT: "4", pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT: "7",
		pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDOUT: "0", pb.TaskExecStdioFileDescriptor_TASK_EXEC_STDIO_FILE_DESCRIPTOR_STDERR: "1",
		pb.TaskExecStdoutConfig_TASK_EXEC_STDOUT_CONFIG_PIPE: "1", pb.TaskExecStderrConfig_TASK_EXEC_STDERR_CONFIG_PIPE: "1",
	} {
		if got := strconv.Itoa(int(e.Number())); got != want {
			t.Errorf("%v is %s, want %s", e, got, want)
		}
	}
	for _, name := range []string{
		pb.ModalClient_SandboxCreateV2_FullMethodName, pb.ModalClient_SandboxGetFromNameV2_FullMethodName, pb.ModalClient_SandboxListV2_FullMethodName,
		pb.ModalClient_SandboxTerminateV2_FullMethodName, pb.ModalClient_SandboxWaitV2_FullMethodName,
	} {
		if !strings.HasPrefix(name, "/modal.client.ModalClient/Sandbox") {
			t.Errorf("%s", name)
		}
	}
	if pb.TaskCommandRouter_TaskExecStart_FullMethodName != "/modal.task_command_router.TaskCommandRouter/TaskExecStart" {
		t.Errorf("%s", pb.TaskCommandRouter_TaskExecStart_FullMethodName)
	}
}
