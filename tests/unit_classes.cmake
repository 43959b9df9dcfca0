# SPDX-License-Identifier: Apache-2.0
# Unit tests by what runs in them. One that is in no list runs in every tree; suite.classes checks the
# lists against what the programs import.

# No thread, process or socket: they run once, under the address and undefined-behaviour sanitizers.
set(pure
    answers asm_programs asm_refusals atomic atomic_requester base build_errors build_flow
    build_memory build_offloads chain_build_walk chain_check chain_code chain_image
    chain_machine chain_manual chain_mutants chain_pages chain_random chain_text chain_trace
    check_dynamic check_listing check_room check_static check_values clock cm cm_message
    cm_refusal cm_route cm_walk code_layout completer completion congestion construct_cost
    cost cost_pages cost_presets cost_random credit credit_requester cross cross_wire dcqcn
    dev_options dev_walk driver driver_verbs events faults faults_text faulty flow
    flow_turing flush forge_walk found funnel hash_get hash_two hashes hist hull_config icrc
    image_fields image_file imm incast isolation list_loop list_walk local local_reference
    loop machine_parts members memory memory_kinds mkey_walk mov no_memory numbers
    offload_hostile offload_message opcode outliving pace packet pcapng peer poll pu qp
    rates read read_serve replay requester responder rs_config rs_dests rs_sets rs_stream
    rs_wire simnet siphash srq steer table timer trace turns uc ud universal window
    wr_fields wr_verbs xrc)
# No thread: nothing for the thread sanitizer to see.
set(one_thread
    auto ecn mail manage registry shm shm_hostile shm_place shm_replies shm_units udp udp6
    udp_lent udp_room)
# The simulator, which links more than it starts.
set(simulators sim sim_chains sim_cm sim_turns)
# Many processes that wait for each other most of the time, on code that others have under a sanitizer.
set(crowds hull_address sharing town)
# Threads that others have under the thread sanitizer. Most of it is what exit(), _exit() and a kill at any
# instruction leave, or much work of one thread beside a helper.
set(ends chain_silence offload_refusal process service_death)
# Long computations, of code that others have under a sanitizer: a rate over many programs, and many worlds
# of the simulator, of which asan.sim has others.
set(long chain_mutants isolation sim)
# Digests of what random calls make: arguments are drawn in an order that C leaves to the compiler.
set(digests chain_build_walk chain_pages wr_fields)
# They count what the C library's allocator hands out; sanitizers have another one.
set(counting footprint)
# How much of a core they use: at most a third, and half or so.
set(waiting_tests auto channel hull_clock hull_managers inspect managers process udp_room units units_park)
set(half_tests helper host_cm hull_address offload_service service_death sharing)
# They listen on ::1, of which there is one.
set(on_loopback6 chain_load channel fork group helper host_cm host_verbs offload_refusal
    offload_service state udp6)

set(not_plain ${pure})
list(REMOVE_ITEM not_plain ${long} ${digests})
set(not_asan ${crowds} ${long} ${digests} ${counting})
set(not_tsan ${pure} ${one_thread} ${simulators} ${crowds} ${ends} ${counting})
