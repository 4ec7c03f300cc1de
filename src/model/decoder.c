/* decoder: forward, loss and backward of a Qwen2, Qwen3 or Llama decoder, over struct ops alone.
 *
 * The order of the store's events. It is the same every step and in the dry run of decoder_new,
 * which makes every call of a step below (head_rows and embed_grad too) with device->planning set:
 * pointers may then be NULL, and what they point to means nothing.
 *
 *   PASS_FORWARD (all that decoder_loss does)
 *     enter root ""
 *       enter model
 *         model.embed_tokens                           (enter, use, leave)
 *         enter model.layers
 *           enter model.layers.0, then .1 ...
 *             input_layernorm
 *             enter self_attn: q_proj, k_proj, v_proj, [q_norm, k_norm,] o_proj, leave
 *             post_attention_layernorm
 *             enter mlp: gate_proj, up_proj, down_proj, leave
 *           leave model.layers.0
 *         leave model.layers
 *         model.norm
 *       leave model
 *       lm_head                                        logits and statistics of the loss
 *     leave root
 *   PASS_BACKWARD
 *     enter root ""
 *       enter lm_head                                  the very next leaf after its forward
 *         for each block of rows in order: head_rows, head_rows_done
 *       leave lm_head
 *       enter model
 *         model.norm
 *         enter model.layers
 *           enter the last layer, then the one before ...
 *             enter mlp: down_proj, up_proj, gate_proj, leave
 *             post_attention_layernorm
 *             enter self_attn: o_proj, [k_norm, q_norm,] v_proj, k_proj, q_proj, leave
 *             input_layernorm
 *           leave
 *         leave model.layers
 *         embed_grad                                   embed_tokens itself is not entered
 *       leave model
 *     leave root
 *
 * Each leaf's gradients are whole when it is left. Loss and targets cross between host and device
 * through ops->copy. */
